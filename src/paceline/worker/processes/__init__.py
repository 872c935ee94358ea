"""The processes of ranks: how they are forked, find each other, and are prepared before torch is imported."""
