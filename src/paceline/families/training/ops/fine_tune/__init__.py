"""Data parallelism on a language that has changed since the model was trained."""
