"""``cache``: what is kept of the tokens before, in fewer bytes; a trained model reads texts over it."""
