"""A model of one's own evaluated by one command: chats, a journal of what was paid, methods on the same traces."""
