"""DP-Fed-WAE: people train an autoencoder whose decoder draws rows. Beside it stand
wake-sleep training in the same rounds, and the baseline LoPub (`lopub`, `lopub_fit`).
"""
