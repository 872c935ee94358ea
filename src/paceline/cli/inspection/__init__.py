"""Commands that look without measuring: at suites, techniques, records, logs, and at this machine."""
