"""What all collectives share: inputs, the oracle, the gate, the timed loop and the figures; it names no operation."""
