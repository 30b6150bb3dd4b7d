"""FedSTDG: people with a few series train a recurrent autoencoder."""
