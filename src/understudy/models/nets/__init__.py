"""The papers' networks: GANs, autoencoders, decoders, recurrent ones, and what trains them. No rows, no privacy, no
loop.
"""
