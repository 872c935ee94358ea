"""What is done with runs: the Python API and what commands share with it, nights, conformance, pytest items."""
