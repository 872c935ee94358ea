"""What happened: record files, the store that keeps them, and other tools' results."""
