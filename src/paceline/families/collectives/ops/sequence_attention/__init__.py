"""Softmax attention over a sequence that is split between ranks: queries meet the keys of all."""
