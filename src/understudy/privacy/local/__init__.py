"""What one person sends by themselves under local privacy: choices of coordinates
(`selection`), noisy values (`piecewise`), bits (`rappor`), one set of cells or one of
many codewords (`naming`).
"""
