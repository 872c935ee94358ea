"""Tables as plain rows, laid out for terminals and written as Markdown."""
