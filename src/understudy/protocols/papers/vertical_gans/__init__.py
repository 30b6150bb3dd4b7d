"""What the GANs over columns share: one generator at the `server`, critics or teachers
at a `party`, the round of private critics, and the `coupling` of generators by released
tables.
"""
