"""FedSTDG: people with a few series each train a recurrent autoencoder.

Paper: Jiang, dissertation, TUM 2024, chapter 5.
What it is: federated learning of a decoder of series under local DP, by SubMDS and
MagRR (`protocol`).
Differs: every participation of a person is charged, and their number is capped.
Baselines: SignDS-S, -E and -M, which are reporters of the same protocol.
"""
