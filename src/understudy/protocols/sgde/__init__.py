"""SGDE: silos train one private generator per class, and pull a pool of them. `protocol` has the settings and
`train`.
"""
