"""What stands on boards: which results, their tables and sweeps, what to take, and techniques against each other."""
