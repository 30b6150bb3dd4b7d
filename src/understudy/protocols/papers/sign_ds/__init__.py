"""SignDS-FL: people train a classifier; each sends a sign and a few dimensions."""
