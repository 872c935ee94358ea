"""Training-like steps with one injected fault, and a detector that must say who is guilty."""
