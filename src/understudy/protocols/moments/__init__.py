"""Moments: counts, means and second moments of images or series in a public frame are released under noise, in three
steps, and Gaussians are fitted to them.

`settings` is what it takes, `study` what is released and chosen, `stages` what is counted.
"""
