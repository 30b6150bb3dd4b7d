"""SignDS-FL: people train a classifier, and each sends one sign and a few dimensions.

Paper: Jiang, Zhou, Grossklags, "SignDS-FL" (ACM TIST 2022); chapter 3 of Jiang,
dissertation, TUM 2024.
What it is: federated learning under local DP. `protocol` is Algorithm 1; LDP-DimSel is
in `privacy/local`.
Differs: every participation of a person is charged, and their number is capped.
Baselines: the other reporters of `cross_device/reporting` (plain signs, all of d).
"""
