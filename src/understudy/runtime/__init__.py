"""How messages travel: `local` in this process, `grpc` between institutions, `flower` inside a Flower federation.

`wire` turns messages into bytes; `contract` and `policy` say what a party takes part in, `session` and `journal` how it
comes back after a kill; `authority`, `certificates` and `identity` say who is who, `audit_log` what was asked of it.
"""
