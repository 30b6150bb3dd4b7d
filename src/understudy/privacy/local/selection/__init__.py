"""Choose the dimensions that matter, privately."""
