"""What runs, hosts, series and measurements are identified by, and how records tell the time."""

from __future__ import annotations

import hashlib
import os
import re
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from paceline.base.aliases import METRICS, technique_first


class _Ticks:
    """The wall clock in 4096ths of a millisecond, which never gives the same or an earlier reading twice."""

    def __init__(self) -> None:
        self._last = 0
        self._lock = threading.Lock()

    def next(self) -> int:
        """Return the reading, or one more than the last if the clock has not gone past that."""
        with self._lock:
            self._last = max((time.time_ns() << 12) // 1_000_000, self._last + 1)
            return self._last


_ticks = _Ticks()


def new_run_id() -> str:
    """Return a UUID version 7 (RFC 9562, section 5.7) that sorts after all this process made before.

    Milliseconds since 1970, then their fraction in twelve bits (section 6.2, method 3), then random bits. Two that fall
    into one 4096th of a millisecond, or a clock that was set back, count on from the last: which of two events was
    written last is read off the order of their files' identities.
    """
    tick = _ticks.next()
    millis, fraction = tick >> 12, tick & 0xFFF
    random_bits = int.from_bytes(os.urandom(8), "big") & ~(0x3 << 62)
    value = (millis & ((1 << 48) - 1)) << 80 | 0x7 << 76 | fraction << 64 | 0x2 << 62 | random_bits
    text = f"{value:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def host_class(host: Mapping[str, Any], device: Mapping[str, Any]) -> str:
    """Return the class of a host: what must be equal before two results are compared.

    Processor model without its clock, cores, memory rounded to a power of two, and for accelerators model (with the
    profile of a MIG slice), count, power limit and what else lowers their clocks. It survives a reboot, another
    hostname, an update of the kernel and one of the driver: what a driver changes is to be found.
    """
    model = re.sub(
        r"\s*@.*$|\((R|TM|r|tm)\)|\bCPU\b|\bProcessor\b", "", str(host.get("cpu") or "unknown cpu")
    )
    parts = [
        " ".join(model.split()),
        f"{host.get('usable_cores')} cores{_quota(host)}",
        f"{host.get('memory_class_gib')} GiB",
    ]
    kind = device.get("kind")
    if kind not in (None, "cpu"):
        parts.append(f"{device.get('name')} × {device.get('count')}")
        parts += _set_as(device.get("devices") or ())
    return ", ".join(parts)


def _quota(host: Mapping[str, Any]) -> str:
    """Say to how much of its cores' time a control group limits a host's processes, where that is less than all."""
    quota, cores = host.get("quota_cores"), host.get("usable_cores")
    limited = isinstance(quota, int | float) and isinstance(cores, int) and quota < cores
    return f" (quota {quota:g})" if limited else ""


def _set_as(devices: Sequence[Mapping[str, Any]]) -> list[str]:
    """Say how accelerators are set, as far as it decides how fast they are; devices of one host may differ."""

    def of_all(texts: Iterable[str | None]) -> list[str]:
        found = sorted({text for text in texts if text})
        return [" and ".join(found)] if found else []

    return [
        *of_all(f"{d['power_limit_w']:.0f} W" if d.get("power_limit_w") else None for d in devices),
        *of_all(_clock(d) for d in devices),
        *of_all(f"partition {d['partition']}" if d.get("partition") else None for d in devices),
    ]


def _clock(settings: Mapping[str, Any]) -> str | None:
    """Say to what a clock is set, where that is not as high as the device goes."""
    clock, highest, level = (settings.get(k) for k in ("clock_set_hz", "clock_max_hz", "level"))
    if clock and highest and clock < highest:
        return f"clock set to {clock / 1e6:.0f} MHz"
    return f"performance level {level}" if level not in (None, "auto") else None


def series_key(family: str, case_id: str, technique: str, host: str | None, contract_id: str) -> str:
    """Return the key under which measurements of different runs form one series; ``host`` is ``series_host``'s."""
    text = "\n".join([case_id, technique_first(family, technique), host or "", contract_id])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def series_host(host: str | None, runner: Mapping[str, Any], ranks: int) -> str | None:
    """Return the class of host and scheduling under which measurements of a group form series.

    Args:
        host: Class of the host.
        runner: The resolved profile; those of before have no ``scheduling``, which was normal.
        ranks: Of the group. A single rank is scheduled alike under all profiles.
    """
    if host is None or ranks < 2 or runner.get("scheduling", "normal") == "normal":
        return host
    return f"{host}, {runner['scheduling']} scheduling"


def record_id(family: str, run_id: str, block: str, label: str, launch: int, metric: str) -> str:
    """Return the identity of a measurement; writing the same one twice is not possible."""
    first = technique_first(family, label), str(launch), METRICS.first(metric)
    text = "\n".join([run_id, block, *first])
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def utc(seconds: float | None = None) -> str:
    """Return a time in UTC as ISO 8601 with milliseconds."""
    moment = time.time() if seconds is None else seconds
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(moment))
    return f"{stamp}.{int(moment % 1 * 1000):03d}Z"
