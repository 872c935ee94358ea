"""``add_rmsnorm``: a residual is added, and the sum normalised by its root mean square."""
