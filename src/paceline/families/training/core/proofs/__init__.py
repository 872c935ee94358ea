"""What a technique must prove before it is timed: the gate, its oracles, and the fences around a replica."""
