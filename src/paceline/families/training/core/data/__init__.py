"""What a block trains on: its text, its setting, and the draws that all of its techniques share."""
