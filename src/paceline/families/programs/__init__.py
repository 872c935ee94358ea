"""Programs of anybody's: commands that are started, timed and judged from outside."""
