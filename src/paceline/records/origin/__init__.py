"""Where a record's numbers come from: commits, suites, and techniques and code of a user's own."""
