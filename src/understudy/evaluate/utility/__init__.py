"""How near a synthetic table, series or image is to the real one: distances of tables, correlations, models trained
on it.
"""
