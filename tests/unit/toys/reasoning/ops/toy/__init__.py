"""``toy``: numbers are guessed."""
