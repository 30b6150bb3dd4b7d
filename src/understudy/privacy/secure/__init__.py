"""Sums and products over holders' rows of which nobody sees the parts: one-time masks,
channels, shares, matching.
"""
