"""A command that is run again and again, each time as a new process."""
