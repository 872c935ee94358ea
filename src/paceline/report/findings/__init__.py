"""What was found, in plain sentences with small charts, and what a board answers first."""
