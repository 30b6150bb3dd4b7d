"""Tied: tables, images and series of the same people at different holders, drawn
together from second moments.
"""
