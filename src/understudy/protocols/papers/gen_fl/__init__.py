"""DP-GenFL: clients train a classifier on real rows and on rows that they made up
(`protocol`); `local` is what a client computes.
"""
