"""What the lines of a record hold, within limits, and how its file is read."""
