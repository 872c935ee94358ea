"""The operations of training, a folder for each: what ranks share, and what is measured of it."""
