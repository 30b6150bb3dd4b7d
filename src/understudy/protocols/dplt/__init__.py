"""DPLT and DPLT+: a tree of latent attributes over several holders' columns.

`protocol` has the settings and `train`; `party` is a holder's side, `plan` what is released and its noise, `tree` how
attributes are grouped and joined.
"""
