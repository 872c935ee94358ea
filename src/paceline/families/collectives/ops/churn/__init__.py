"""All-reduces in a group of which one peer is killed and which another joins."""
