"""Seeds of what tests run: one a module, the same in every run; what measures draws afresh, and says what it drew.

``make test`` and ``make test-full`` find the same faults each time. Rare draws are looked for by ``make test-measured``
and by ``pytest --seed N``.
"""

from __future__ import annotations

import random
import zlib

_BITS = 32
_given: int | None = None
_current = 0


def give(seed: int | None) -> None:
    """Let all modules use one seed, as ``--seed`` asks; None for their own."""
    global _given  # noqa: PLW0603
    _given = seed


def enter(module: str, *, fresh: bool) -> int:
    """Begin a module's tests; return its seed, which follows from its name, or is drawn where it is to be ``fresh``."""
    global _current  # noqa: PLW0603
    drawn = random.SystemRandom().getrandbits(_BITS) if fresh else zlib.crc32(module.encode())
    _current = drawn if _given is None else _given
    return _current


def current() -> int:
    """Return the seed of the module whose tests run."""
    return _current
