"""Ranks that share the experts of every layer, symbol by symbol and forward alone."""
