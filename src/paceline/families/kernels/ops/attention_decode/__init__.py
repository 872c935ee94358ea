"""``attention_decode``: one new token of every sequence attends to that sequence's cache."""
