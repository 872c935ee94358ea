"""Gossip: replicas move towards their mean by exchanges of a few of them."""
