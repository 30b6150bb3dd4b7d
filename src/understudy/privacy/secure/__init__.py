"""Sums and products over holders' rows of which nobody sees the parts: pads, masks,
channels, shares, matching.
"""
