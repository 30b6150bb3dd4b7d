"""Gram: all one- and two-way tables of the joint data are released once under noise,
and a mixture is fitted to them.

`settings` is what it takes, `protocol` what is released and chosen, `stages` what is
counted, `layout` the matrix as both sides see it, `fit` what the server makes of
releases, `forecast` what a plan says.
"""
