"""What techniques of serving build on: contracts, and the parts that baselines share. All that they may import."""
