"""Words and numbers as pages and terminals print them: estimates, names, bounds, and why a run stopped."""
