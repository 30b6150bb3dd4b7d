"""Distributions over tables: the mixture behind Gram with its fit and its priors, Bayesian networks, copulas."""

from understudy.models.tables.bayes import BayesNet, Coded, GaussianCopula, invert
from understudy.models.tables.given_rules import Ruled, Tie
from understudy.models.tables.loss import Triple
from understudy.models.tables.mixture import MixtureOfProducts, latin
from understudy.models.tables.noisy_tables import read_tables

__all__ = [
    "BayesNet",
    "Coded",
    "GaussianCopula",
    "MixtureOfProducts",
    "Ruled",
    "Tie",
    "Triple",
    "invert",
    "latin",
    "read_tables",
]
