"""What VertiGAN, VDGAN and the central GAN share: one generator at the `server`, a
`party` that pays for each round, the `critic_round` of private critic steps, and the
`coupling` of a generator to released 2-way marginals.
"""
