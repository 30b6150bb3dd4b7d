"""A receiver for uploads from people's devices: `store` on disk, `box` what is taken, `app` and `serve` over HTTPS."""
