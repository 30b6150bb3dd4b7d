"""Holders on their own machines: the server of a run file, a holder's part, and what
either shows of itself.

`serve` is the hub's side of a run, `holder` a party's, `flower` both inside Flower.
`decisions` are what stewards said about contracts; `status` is what there is to see.
"""
