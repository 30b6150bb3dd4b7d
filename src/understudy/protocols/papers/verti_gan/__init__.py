"""VertiGAN: holders of different columns of the same people train one generator.

Paper: Jiang, Zhang, Zhou, Grossklags, "Distributed GAN-based privacy-preserving
publication of vertically-partitioned data" (PoPETs 2023(2)).
What it is: one generator at the server, one private critic at each party (`protocol`,
`party`).
Differs: WGAN-GP's signs, secret Poisson batches of each party; an optional coupling by
released 2-way marginals (`vertical_gans/coupling`).
Baselines: the central GAN (`central_gan`), DPLT and DPLT+ (`dplt`, `dplt_tree`).
"""
