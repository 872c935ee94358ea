"""Training: data-parallel techniques on one language model, at equal tokens, on links that may be slow."""
