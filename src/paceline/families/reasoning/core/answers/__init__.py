"""Reading answers out of free text by exact rules: numbers, letters of choices, and formulas."""
