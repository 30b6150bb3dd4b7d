"""VDGAN: holders of different columns judge the synthetic rows of one generator.

Paper: Zhang, "GAN-Based Differentially Private Publication of Vertically Partitioned
Data" (master's thesis, TUM 2022).
What it is: a private critic at each party (`protocol`), or thousands of teachers that
vote under noise (`pate`).
Differs: a person's price is composed over the parties; batches are secret Poisson
samples; add/remove of one person, so a clipped gradient has sensitivity C.
Baselines: those of `verti_gan`.
"""
