"""The collectives, a folder for each: what a point of it is, which result is right, and what is measured of it."""
