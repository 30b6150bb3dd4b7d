"""What one person sends by themselves under local privacy: choices of coordinates (`selection`), noisy values
(`mean`), bits (`rappor`), one set of cells (`subset_selection`), one of many codewords (`nearest_codes`).

A `Reporter` turns updates into reports and reports into a sum.
"""
