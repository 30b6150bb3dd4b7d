"""Does the code keep its promise? Made-up runs with and without a canary, and the least
ε that explains them.
"""
