"""SGDE: silos train one private generator per class, or release sums, and pull a pool of them.

`protocol` has the settings and `train`; `party` is a silo's side, `recipe` how it trains, `offer` what a pool takes,
`pooling` what is made of it. `gram` and `moments` are offers of sums; `quality`, `figure` and `suspects` judge offers.
"""
