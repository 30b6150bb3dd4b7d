"""DPLT and DPLT+: a tree of latent attributes over several holders' columns."""
