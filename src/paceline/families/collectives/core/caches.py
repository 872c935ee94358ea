"""The host's last-level cache, and how many sets of buffers go beyond it."""

from __future__ import annotations

CACHE_BYTES_FALLBACK = 32 << 20


def buffer_sets(cache: str, size_bytes: int) -> int:
    """Return how many sets of buffers make up twice the last-level cache."""
    if cache != "cold-rotate":
        return 1
    return max(2, min(64, -(-2 * cache_bytes() // max(size_bytes, 1))))


def cache_bytes() -> int:
    """Return the size of the host's last-level cache, or a fallback where the kernel does not say."""
    best = 0
    for index in range(5):
        path = f"/sys/devices/system/cpu/cpu0/cache/index{index}/size"
        try:
            with open(path) as file:  # noqa: PTH123 - a sysfs attribute
                text = file.read().strip()
        except OSError:
            continue
        scale = {"K": 1 << 10, "M": 1 << 20}.get(text[-1:], 1)
        best = max(best, int(text.rstrip("KM")) * scale)
    return best or CACHE_BYTES_FALLBACK
