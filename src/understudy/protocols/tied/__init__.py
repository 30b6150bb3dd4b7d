"""Tied: tables, images and series of the same people at different holders. All second moments of their joint vector are
released under noise, across holders by secure products, and one generator is fitted that draws all of them together.
"""
