"""``influence``: whose data helped whom among peers that learn by gossip, against runs without them. Free of torch."""
