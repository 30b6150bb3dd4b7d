"""How near a synthetic table, series or image is to the real one: distances,
correlations, models trained on it.
"""
