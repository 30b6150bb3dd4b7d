"""Joint counts of several holders, of which nobody sees more than the noisy result."""
