"""``strided_copy``: blocks of columns of a matrix become contiguous."""
