"""The vertical GANs: one generator at the server, critics or teachers at the holders of
columns.
"""
