"""Charts as SVG, readable without scripts, and what the pages' script needs to zoom into them."""
