"""The harness measured by itself: work of known duration on the fake device."""
