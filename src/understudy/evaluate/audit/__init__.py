"""Does the code keep its promise? Runs on made-up rows with and without a canary, and the least ε that explains the
difference.
"""
