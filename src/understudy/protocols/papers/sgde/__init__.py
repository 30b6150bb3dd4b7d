"""SGDE: silos train one private generator per class, or release sums, and pull a pool
of them.

`protocol` has the settings and `train`; `party` is a silo's side, `offering` what it
makes of its rows by a `recipe`; `offer` and `sums` are what a pool takes, `pool` what
is made of it; `kinds` has tables, images and series.
"""
