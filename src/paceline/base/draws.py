"""Seeds of what is drawn at random: none of them tells another one, or what it was made of."""

from __future__ import annotations

import hashlib


def stream_seed(seed: int, *stream: int | str) -> int:
    """Return the seed of one of several streams that one seed gives, below 2⁶³.

    Of a generator's seed PyTorch uses 32 bits, and the generator's first numbers tell them (the Mersenne Twister is no
    cipher). Seeds that differ by a number known to all would so give away each other's draws: whoever is shown weights
    early, or its own share of all inputs, would know the rest. From a digest (SHA-256) nothing follows.

    Args:
        seed: As long as is wished: what can be guessed of it can be guessed of all streams.
        stream: Names the stream.
    """
    digest = hashlib.sha256(repr((seed, *stream)).encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1
