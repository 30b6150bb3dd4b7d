"""Distributions over tables: the mixture behind Gram with its fit and its priors,
Bayesian networks, copulas.
"""
