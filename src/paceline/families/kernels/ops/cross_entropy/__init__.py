"""``cross_entropy``: the loss of every token, of given logits."""
