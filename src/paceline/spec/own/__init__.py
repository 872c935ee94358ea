"""What is a user's own: techniques given on the command line, and code that points name."""
