"""Files that people write, read with file, line and key of every mistake: YAML, its models and kinds, earlier names."""
