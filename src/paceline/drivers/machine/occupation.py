"""A run's hold on the machine: the lease, then a look whether the machine is idle."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from paceline.base.errors import InfrastructureError
from paceline.base.redaction import redact_arguments
from paceline.drivers.machine import lease as leases
from paceline.drivers.machine.idleness import look

HOST_DRIVERS = frozenset({"local", "docker"})
"""Drivers that compute on this host; a scheduler gives machines away by itself, and ``debug`` claims no time."""
LOOK_AGAIN_S = 2.0


@dataclass(slots=True, kw_only=True)
class Occupation:
    """What is known of the machine that a run has to itself."""

    lease: leases.Lease | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    """For the record: whether the machine was held, and what disturbed it."""

    def announce(self, run_id: str) -> None:
        """Say which run is being measured to those who wait."""
        if self.lease is not None:
            self.lease.announce(run_id)


def measures_here(runner: Mapping[str, Any]) -> bool:
    """Say whether a runner takes real time on this host: virtual time disturbs nobody and cannot be disturbed."""
    return runner["driver"] in HOST_DRIVERS and runner["device"] != "fake"


@contextmanager
def occupied(
    runner: Mapping[str, Any],
    *,
    wait_s: float = 0.0,
    allow_concurrent: bool = False,
    demand_idle: bool = False,
    inspect: bool = True,
    elsewhere: bool = False,
    say: Callable[[str], None] = lambda text: None,
) -> Iterator[Occupation]:
    """Hold this machine for a run on a runner, and look at it.

    Args:
        runner: The resolved runner profile.
        wait_s: How long to wait for another run, and for an idle machine where that is demanded.
        allow_concurrent: Go on although another run measures here.
        demand_idle: Refuse a machine on which others compute, as a profile with ``idle: demand`` does.
        inspect: Look at the machine now; a night looks before each of its runs instead.
        elsewhere: Programs that the harness has not started are measured; they may well compute here.
        say: Told what a person should know.

    Raises:
        InfrastructureError: Another run holds the machine, or it is not idle and that is demanded.
    """
    if not measures_here(runner):
        yield Occupation()
        return
    beside = leases.holder() if allow_concurrent else None
    lease = None
    if beside is None:
        what = " ".join(redact_arguments(["paceline", *sys.argv[1:]]))
        lease = leases.take(what, wait_s=wait_s, say=say)
    try:
        demanded = demand_idle or runner.get("idle") == "demand"
        facts = (
            look_around(runner, demand_idle=demanded, wait_s=wait_s, say=say, elsewhere=elsewhere)
            if inspect
            else {}
        )
        facts["lease"] = "held" if beside is None else f"shared with {beside.text()}"
        yield Occupation(lease=lease, facts=facts)
    finally:
        if lease is not None:
            lease.release()


def look_around(
    runner: Mapping[str, Any],
    *,
    demand_idle: bool,
    wait_s: float,
    say: Callable[[str], None],
    elsewhere: bool = False,
) -> dict[str, Any]:
    """Look at the machine as a runner uses it, and wait for an idle one where that is demanded.

    Raises:
        InfrastructureError: It is demanded and did not come.
    """
    deadline = time.monotonic() + wait_s
    found = look(runner)
    while demand_idle and found.disturbances and time.monotonic() < deadline:
        time.sleep(min(LOOK_AGAIN_S, max(deadline - time.monotonic(), 0.0)))
        found = look(runner)
    if found.disturbances:
        text = "; ".join(found.disturbances)
        if demand_idle:
            raise InfrastructureError(
                f"this machine is not idle, and an idle one is demanded: {text}\n"
                "  fix: end that work, or wait; idle: warn in the runner profile or the nightly file goes on"
            )
        if elsewhere:
            say(f"this machine is not idle; what of it is not the server slows the client: {text}")
        else:
            say(f"this machine is not idle, and launches that others disturb count for nothing: {text}")
    if found.limit:
        say(f"{found.limit}; such runs have a host class of their own")
    return {**found.facts(), "idle_demanded": demand_idle}
