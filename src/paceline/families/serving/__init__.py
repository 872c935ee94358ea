"""Serving of language models under load: a client that can be trusted, servers, and schedulers."""
