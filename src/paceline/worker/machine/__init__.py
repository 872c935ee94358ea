"""The machine that measures: its devices and their settings, its host, its memory, and who else uses it."""
