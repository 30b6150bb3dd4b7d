"""Class means: a classifier of images or series from one report of each person."""
