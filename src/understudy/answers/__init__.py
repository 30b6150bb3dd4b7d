"""Questions to a generator: rows that meet a condition, what is missing of rows,
tables. Post-processing, so free.
"""
