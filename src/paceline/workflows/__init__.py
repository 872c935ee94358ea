"""What is done with runs: nights, the conformance of a technique, pytest items."""
