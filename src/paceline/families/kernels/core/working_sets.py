"""How many working sets a pass goes through, and what is written before it, for the caches that a protocol asks for."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.families.kernels.core.caches import caches_of
from paceline.families.kernels.core.candidate import Candidate
from paceline.families.kernels.core.point import Point
from paceline.worker.machine.device import Device
from paceline.worker.ranks.session import Block, Session

PASS_S = 0.002
"""A pass of short calls should last about this long."""
MAX_SETS = 64
MAX_SET_BYTES = 512 << 20
SLOWEST_READ = 1e9
"""Bytes a second: reading tensors into the caches is never slower."""
HOT_SHARE = 0.5
"""Share of the second-level cache that the working sets of a hot pass may fill."""


def point_bytes(point: Point) -> int:
    """Return the bytes of one working set."""
    return max(sum(s.num_bytes for s in (*point.specs[0], *point.specs[1])), 1)


def num_sets(session: Session, block: Block, point: Point, candidates: Sequence[Candidate]) -> int:
    """Return R, the calls of one pass: enough for the clock, within the caches that the protocol asks for.

    The fastest technique's trial call sets R, the same for all.
    """
    cache = str(block.protocol["cache"])
    if cache == "cold-flush":
        return 1
    set_bytes, caches = point_bytes(point), caches_of(session.device)
    # Sets exist once in each technique's process, so their number is bounded by memory first.
    fits = max(MAX_SET_BYTES // set_bytes, 1)
    if cache == "cold-rotate":
        return max(2, min(-(-2 * caches.last_level_bytes // set_bytes), MAX_SETS, fits))
    # A pass has to be long against the clock's resolution and the message around it.
    quickest = min(candidate.trial_s for candidate in candidates)
    wanted = int(PASS_S / max(quickest, 1e-9)) + 1
    hot = max(int(HOT_SHARE * caches.private_bytes // set_bytes), 1)
    return max(1, min(wanted, MAX_SETS, hot, fits))


def set_cache_policy(candidate: Candidate, policy: str, sets: int) -> None:
    """Let a candidate flush, rotate or stay hot, and say how long reading its sets may take."""
    candidate.flush_bytes = flush_bytes(candidate.session.device, policy, sets * point_bytes(candidate.point))
    candidate.hot = policy == "hot"
    candidate.touch_ns = int(1e9 * sets * point_bytes(candidate.point) / SLOWEST_READ)


def flush_bytes(device: Device, policy: str, rotated_bytes: int) -> int:
    """Return the bytes that are written before a pass, so that its calls find nothing of theirs in a cache.

    A rotation that is smaller than twice the last-level cache is written, and then found there: on accelerators, whose
    caches take hundreds of MiB, it is flushed before a pass, of which each call has a set of its own.

    Args:
        device: That computes.
        policy: The protocol's.
        rotated_bytes: Of all working sets.
    """
    twice = 2 * caches_of(device).last_level_bytes
    small = policy == "cold-rotate" and device.torch_type != "cpu" and rotated_bytes < twice
    return twice if policy == "cold-flush" or small else 0
