"""How calls are timed: the techniques of a block in turn, and where the time of one call goes."""
