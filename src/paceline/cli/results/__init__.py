"""Commands that tell what records say: comparisons, summaries, samples, trends, claims, and the store itself."""
