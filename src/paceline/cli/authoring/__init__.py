"""Commands for authors: begin a suite or a technique, and check that a technique conforms."""
