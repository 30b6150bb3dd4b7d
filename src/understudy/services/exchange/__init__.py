"""The generator exchange: silos trade generators instead of gradients, over HTTP.

`service` is what may be done, on `database` and files; `app` and `serve` put it on a
port. `checker` looks at an offer in a process of its own (`check_worker`). `client` is
a silo's side, `offer_file` what both speak.
"""
