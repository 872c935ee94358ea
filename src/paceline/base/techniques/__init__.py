"""What a technique says of itself: what it promises, requires and can be set to, and what it was written from."""
