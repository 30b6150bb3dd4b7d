"""What every service has towards strangers: how many `connections`, how much
(`limits`), and its `skeleton`.
"""
