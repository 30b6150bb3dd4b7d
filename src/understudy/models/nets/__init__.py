"""The papers' networks: GANs, autoencoders, decoders, recurrent ones. No rows, no
privacy, no loop.
"""
