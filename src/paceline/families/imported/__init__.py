"""Numbers of other tools: what their quantities are called and how those tools define them. Nothing here measures."""
