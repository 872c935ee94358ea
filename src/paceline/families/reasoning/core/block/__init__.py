"""What all techniques of a block share: its models and questions, where they come from, and its own traces."""
