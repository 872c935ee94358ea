"""What is kept of the tokens before, in fewer bytes: texts of a trained model, read position by position."""
