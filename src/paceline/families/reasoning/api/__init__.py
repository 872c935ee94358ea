"""What techniques of the reasoning family may import: requests and replies, calls of tools, votes."""
