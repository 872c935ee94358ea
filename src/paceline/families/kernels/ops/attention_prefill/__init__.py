"""``attention_prefill``: causal self-attention of a whole prompt."""
