"""``coded_gradients``: a master sums gradients of workers that straggle in bursts, in virtual time. Free of torch."""
