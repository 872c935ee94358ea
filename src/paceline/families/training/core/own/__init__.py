"""A user's own module and data: imported, looked at, and fed to the ranks."""
