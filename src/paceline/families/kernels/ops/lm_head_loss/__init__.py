"""``lm_head_loss``: the loss of a language model's head, with both gradients."""
