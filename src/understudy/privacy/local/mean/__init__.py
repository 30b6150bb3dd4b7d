"""Estimate a mean of bounded vectors, each perturbed by its owner."""
