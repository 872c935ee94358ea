"""What starts programs, reads what they report, and judges how they end; it names no operation."""
