"""Gram: all one- and two-way tables of the joint data are released once, under noise, and a mixture is fitted to
them.

`protocol` has the settings and `train`; `party` is a holder's side, `releases` the server's, `layout` what both
see alike, `across` three-way tables of two holders' columns.
"""
