"""One self-contained page by which a holder decides whether to publish."""
