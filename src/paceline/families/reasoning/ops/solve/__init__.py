"""``solve``: questions answered by traces of one model, replayed in other orders of the same traces."""
