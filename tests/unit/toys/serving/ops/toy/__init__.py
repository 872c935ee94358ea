"""``toy``: calls are dealt out to steps."""
