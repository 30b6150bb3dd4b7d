"""What several holders have of the same people, drawn together: a mixture for their tables, Gaussians given its levels
for their images and series, and how both are fitted to released moments.
"""
