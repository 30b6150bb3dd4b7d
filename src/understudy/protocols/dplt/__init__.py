"""DPLT and DPLT+: a tree of latent attributes over several holders' columns.

`protocol` has the paper, the settings, what is released and its price, and `train`; `tree` what is chosen and counted,
and how attributes are grouped and joined.
"""
