"""One folder an operation."""
