"""``toy``: numbers change their sign."""
