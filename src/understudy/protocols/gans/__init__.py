"""The vertical GANs: one generator at the server, critics or teachers at the holders of columns.

VertiGAN (`verti_gan`, `coupling`), VDGAN (`vd_gan`, `vd_gan_pate`), and the same with everything in one
place (`central_gan`).
"""
