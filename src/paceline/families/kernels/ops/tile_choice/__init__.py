"""``tile_choice``: times of a tiled matrix product are predicted, and the tile chosen by them."""
