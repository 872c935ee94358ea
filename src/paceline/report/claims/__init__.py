"""Papers' claims, headlines and premises in words, and the page of all of them."""
