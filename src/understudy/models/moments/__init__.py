"""Gaussians in a public frame, one for each class or cell of a class, and how they are
fitted to released moments.
"""
