"""What every service has towards strangers: who may stay (`doors`), how much
(`limits`), and its `skeleton`.
"""
