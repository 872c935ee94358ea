"""The static site: its kinds of pages, what they show together, its search, its documents, and how it is written."""
