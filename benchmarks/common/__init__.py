"""What the benchmarks share: options, CSV files, a grid of cells, data sets and their
sources, tables for READMEs.
"""
