"""Reasoning: test-time methods that draw several traces of a language model, at equal questions and equal traces."""
