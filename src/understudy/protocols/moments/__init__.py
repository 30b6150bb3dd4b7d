"""Moments: counts, means and second moments of images or series in a public frame are released under noise, in three
steps, and Gaussians are fitted to them.

`protocol` has the settings and `train`; `party` is a holder's side, `releases` the server's, `stages` what both see
alike.
"""
