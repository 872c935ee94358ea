"""How a block is measured: the loop of training, what it counts, and how its runs are judged."""
