"""What several holders have of the same people, drawn together: a mixture for tables,
Gaussians given its levels.
"""
