"""Gradients that may leave: clipped for each person, summed, and noised once a batch.

`dp_sgd` for networks of products, `critic` for WGAN-GP critics in closed form, `pate`
for votes of teachers; `limits` proves that no sum under- or overflows.
"""
