"""VertiGAN: holders of columns train one generator against private critics (`protocol`,
`party`). Beside it stand its baselines: the central GAN, and DPLT with DPLT+ (`dplt`,
`dplt_tree`).
"""
