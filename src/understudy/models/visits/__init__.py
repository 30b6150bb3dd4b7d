"""People with many rows: the released tables, and the mixture of kinds of people that
is fitted to them.
"""
