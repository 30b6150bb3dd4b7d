"""Tied: tables, images and series of the same people at different holders. All second moments of their joint vector are
released under noise, across holders by secure products, and one generator is fitted that draws all of them together.

`study` is what is released and chosen, `stages` a holder's people as whole numbers and what is counted of them,
`reading` what releases say and what is fitted to them.
"""
