"""Moments: counts, means and second moments of images or series in a public frame, and
Gaussians fitted to them.
"""
