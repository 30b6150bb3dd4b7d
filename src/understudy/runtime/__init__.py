"""How messages travel: `local` in this process, `grpc` between institutions, `flower` inside a Flower federation.

`wire` turns messages into bytes; `contract` says what a party takes part in, `session` and `journal` how it comes back
after a kill, and what was asked of it; `certificates` and `identity` say who is who.
"""
