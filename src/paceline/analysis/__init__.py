"""What records say: comparisons, claims, trends, gates, reproductions."""
