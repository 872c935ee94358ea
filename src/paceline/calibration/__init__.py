"""The harness measured by itself."""
