"""Contracts that metrics of several modules share, in words that people check; free of torch."""

BYTES = {
    "counter": "payload bytes that pass through the communicator, headers excluded",
    "ranks": "the rank that sends most",
}
LOSS = {
    "model": "the weights that would be shipped at that moment, copied between steps and evaluated after training",
    "data": "held-out sequences, drawn after techniques were imported, equal for all techniques of a block",
    "value": "mean cross-entropy of the next symbol over all positions, natural logarithm; mean over ranks",
}
