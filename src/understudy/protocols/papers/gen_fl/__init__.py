"""DP-GenFL: clients train a classifier on their rows and on rows of a local generator.

Paper: Li, Wei, Ma, Shu, "DP-GenFL: A Local Differentially Private Federated Learning
System through Generative Data" (supplementary file).
What it is: federated averaging over clients (`protocol`); `local` is what a client
computes.
Differs: per-sample DP-SGD; the paper's generator has no noise and is charged as a
release without a guarantee, unless `dp_generator` trains it privately.
Baselines: DP-FL, which is γ = 0.
"""
