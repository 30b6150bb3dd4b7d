"""Gaussians in a public frame, one for each class or for each cell of a class, and how they are fitted to released
moments.
"""
