"""Training one language model, data, pipeline or sequence parallel, at equal tokens, on links that may be slow."""
