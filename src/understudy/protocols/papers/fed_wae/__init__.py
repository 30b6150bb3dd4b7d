"""DP-Fed-WAE: people train an autoencoder whose decoder samples synthetic rows.

Paper: Jiang, Zhou, Grossklags, "Privacy-preserving high-dimensional data collection
with federated generative autoencoder" (PoPETs 2022(1)); chapter 4 of Jiang,
dissertation, TUM 2024.
What it is: federated learning of a Wasserstein autoencoder under local DP (`protocol`).
Differs: the encoding of rows is public, numbers are cut into the schema's bins, and
columns are sampled from the decoder's probabilities instead of their argmax.
Baselines: LoPub and LoCop (`lopub`, `lopub_fit`). Our own wake-sleep training in the
same rounds is `wake_sleep`.
"""
