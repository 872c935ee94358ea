"""The last-level cache of what computes, the host or its device, and how many sets of buffers go beyond it."""

from __future__ import annotations

from collections.abc import Mapping

from paceline.worker.machine.device import Device

CACHE_BYTES_FALLBACK = 32 << 20
"""Of a host whose kernel does not say."""
DEVICE_CACHE_BYTES: Mapping[str, int] = {"cuda": 128 << 20, "rocm": 256 << 20, "npu": 192 << 20}
"""The largest of each vendor's devices, where torch does not say: B200's L2, Ascend 910's L2. An MI300X says 4 MiB, the
L2 of one of its dies, and has 256 MiB of Infinity Cache behind all of them."""
UNTOLD = frozenset({"rocm"})
"""Devices that have a cache behind the one that torch tells of."""


def buffer_sets(cache: str, size_bytes: int, device: Device) -> int:
    """Return how many sets of buffers make up twice the last-level cache."""
    if cache != "cold-rotate":
        return 1
    return max(2, min(64, -(-2 * cache_bytes(device) // max(size_bytes, 1))))


def flush_bytes(cache: str, device: Device) -> int:
    """Return how many bytes are overwritten before a call; none where caches stay as they are."""
    if cache != "cold-flush":
        return 0
    # Twice a device's: its cache hashes addresses to sets, and keeps some of what is read and written once.
    return cache_bytes(device) * (1 if device.torch_type == "cpu" else 2)


def cache_bytes(device: Device) -> int:
    """Return the size of the device's last-level cache, or a fallback where nobody says."""
    if device.torch_type == "cpu":
        return _host_cache_bytes()
    told = int(device.describe().get("last_level_cache_bytes") or 0)
    least = DEVICE_CACHE_BYTES.get(device.kind, CACHE_BYTES_FALLBACK)
    return max(told, least) if device.kind in UNTOLD or not told else told


def _host_cache_bytes() -> int:
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
