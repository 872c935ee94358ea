"""What both planes share, free of dependencies: errors, units, techniques, families."""
