"""What techniques of programs may import."""
