"""Gram: all one- and two-way tables of the joint data are released once under noise, and a mixture is fitted to them.

`protocol` has `train`, `settings` what it takes, `study` what is released and chosen, `stages` what is counted,
`layout` the matrix as both sides see it, `measured` all releases as one matrix.
"""
