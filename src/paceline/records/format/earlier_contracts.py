"""Contracts of metrics of before: what published records hold that no family has any more.

Contracts that changed before they had versions; the ids of earlier versions are known by themselves.
"""

from __future__ import annotations

from collections.abc import Mapping

EARLIER: Mapping[str, tuple[str, ...]] = {
    "collectives/bare_loop_s": ("5c350e7804af",),
    "collectives/exposed_s": ("1e40aed3bff6",),
    "collectives/latency": ("948cab3a553f",),
}
"""``family/metric`` → digests."""
