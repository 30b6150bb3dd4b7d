"""DPLT and DPLT+: a tree of latent attributes over several holders' columns.

`protocol` has the paper and `train`; `study` the settings, what is released and its price, `tree` what is chosen and
counted, and how attributes are grouped and joined.
"""
