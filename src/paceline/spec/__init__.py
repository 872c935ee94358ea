"""What a person writes: suites, runner profiles, the ledger, techniques of one's own; and the plan that comes of it."""
