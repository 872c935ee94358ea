"""Language models of other people: local ones of ``transformers``, and endpoints that speak the OpenAI interface."""
