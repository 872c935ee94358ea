"""What several operations of serving share; nothing in it knows which operations there are."""
