"""Sums and products over several holders' rows of which nobody sees the parts: pads, dealt masks, sealed channels,
the set intersection that finds the people they share, and tables or moments in two shares, with the check that they
are such.
"""
