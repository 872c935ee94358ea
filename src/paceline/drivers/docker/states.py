"""How containers end, and what a Docker Engine's refusals mean: codes and sentences. No I/O."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

OUT_OF_MEMORY = "OUT_OF_MEMORY"
TIMEOUT = "TIMEOUT"
JOB_SIZE = "JOB_SIZE"
KILLED = "KILLED"
LOST = "LOST"
ENGINE_RESTARTED = "ENGINE_RESTARTED"
ENGINE_UNREACHABLE = "ENGINE_UNREACHABLE"
PERMISSION_DENIED = "PERMISSION_DENIED"
IMAGE_MISSING = "IMAGE_MISSING"
WRONG_ARCHITECTURE = "WRONG_ARCHITECTURE"
IMAGE_UNFIT = "IMAGE_UNFIT"
NO_DEVICE = "NO_DEVICE"
REFUSED = "REFUSED"

REASONS: Mapping[str, str] = {
    OUT_OF_MEMORY: "the container went over its memory, and its launcher was killed for it",
    TIMEOUT: "the run reached its time limit",
    JOB_SIZE: "the run wrote more into its job folder than it may",
    KILLED: "somebody killed the container",
    LOST: "somebody removed the container",
    ENGINE_RESTARTED: "the Docker Engine went away while the container ran, and took it along",
}
"""Endings of containers that are no technique's fault: what a run lacks then has status ``infrastructure``."""

KILL_CODES = frozenset({128 + 9, 128 + 15})

_REFUSALS: tuple[tuple[str, str, str], ...] = (
    (
        r"could not select device driver",
        NO_DEVICE,
        "install the vendor's container toolkit, restart the engine",
    ),
    (r"error gathering device information", NO_DEVICE, "ls -l the device: is its driver loaded?"),
    (
        r"unresolvable CDI devices|CDI device injection",
        NO_DEVICE,
        "write the CDI specification of the devices",
    ),
    (
        r"[Uu]nknown (or invalid )?runtime",
        NO_DEVICE,
        "register the vendor's runtime in /etc/docker/daemon.json",
    ),
    (r"exec format error", WRONG_ARCHITECTURE, "build the image on this architecture"),
    (r"no such image|manifest unknown|pull access denied|not found: manifest", IMAGE_MISSING, "make image"),
    (r"(lookup|dial tcp|no such host|connection refused).*", IMAGE_MISSING, "load the image: docker load"),
    (r"executable file not found|no such file or directory", IMAGE_UNFIT, "an image with sh and python3"),
    (r"permission denied", PERMISSION_DENIED, "chmod the folder, or run as a user who may use it"),
)
"""What the engine says → our code, and what helps. The first that fits wins."""


def refusal(words: str) -> tuple[str, str | None]:
    """Return the code of an engine's refusal, and what helps."""
    for pattern, code, fix in _REFUSALS:
        if re.search(pattern, words, re.IGNORECASE):
            return code, fix
    return REFUSED, None


def ending(state: Mapping[str, Any] | None, *, engine_was_away: bool) -> str | None:
    """Return the code of an ending that is the infrastructure's; None for a launcher that ended by itself.

    Args:
        state: ``State`` of the container, which has ended; None when there is no such container.
        engine_was_away: Whether the engine failed to answer since the container was seen last.
    """
    if state is None:
        return ENGINE_RESTARTED if engine_was_away else LOST
    code = int(state.get("ExitCode") or 0)
    if code and engine_was_away:
        return ENGINE_RESTARTED
    if code in KILL_CODES:
        return OUT_OF_MEMORY if state.get("OOMKilled") else KILLED
    return None
