"""Commands that hand results on: the site, exports and imports."""
