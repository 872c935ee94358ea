"""What the page of one point shows: samples, answers, calls, curves, timelines and trade-offs."""
