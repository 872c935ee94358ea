"""Runners that failed again and again for reasons of infrastructure are left alone until a person says otherwise."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paceline.base.errors import UserError, expected_one_of
from paceline.drivers.machine.state import open_shared, state_folder, write_whole
from paceline.records.identity import utc

QUARANTINE = "quarantine.json"
LOCK = "quarantine.lock"
MAX_REASON = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How a runner has done on this host."""

    runner: str
    failures: int
    """One after another, the newest last."""
    reason: str
    at: str
    quarantined: bool

    def text(self) -> str:
        """Say it in one line, with the command that lifts it."""
        return (
            f"runner {self.runner} is in quarantine since {self.at}: {self.failures} infrastructure failures in a "
            f"row, the last: {self.reason} (to use it again: paceline doctor --unquarantine {self.runner})"
        )


def standings(folder: Path | None = None) -> dict[str, Standing]:
    """Return every runner that failed lately; a state file that makes no sense counts as none."""
    try:
        found = json.loads(((folder or state_folder()) / QUARANTINE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return {name: _standing(name, facts) for name, facts in found.items() if isinstance(facts, dict)}


def _standing(name: str, facts: Mapping[str, Any]) -> Standing:
    return Standing(
        runner=name,
        failures=int(facts.get("failures", 0)),
        reason=str(facts.get("reason", "")),
        at=str(facts.get("at", "")),
        quarantined=bool(facts.get("quarantined")),
    )


def quarantined(runner: str, folder: Path | None = None) -> Standing | None:
    """Return a runner's standing if it is to be left alone."""
    found = standings(folder).get(runner)
    return found if found is not None and found.quarantined else None


def failed(runner: str, reason: str, *, limit: int, folder: Path | None = None) -> Standing:
    """Count an infrastructure failure; the ``limit``-th in a row puts the runner into quarantine."""
    with _changing(folder) as state:
        failures = int(state.get(runner, {}).get("failures", 0)) + 1
        state[runner] = {
            "failures": failures,
            "reason": reason.strip().splitlines()[0][:MAX_REASON] if reason.strip() else "unknown",
            "at": utc(),
            "quarantined": failures >= limit or bool(state.get(runner, {}).get("quarantined")),
        }
        return _standing(runner, state[runner])


def succeeded(runner: str, folder: Path | None = None) -> None:
    """Forget a runner's failures; a quarantine stays until it is lifted."""
    if runner in standings(folder):
        with _changing(folder) as state:
            if not state.get(runner, {}).get("quarantined"):
                state.pop(runner, None)


def end_quarantine(runner: str, folder: Path | None = None) -> None:
    """Let a runner be used again.

    Raises:
        UserError: It is not in quarantine.
    """
    with _changing(folder) as state:
        if runner not in state:
            raise UserError(
                f"runner '{runner}' is not in quarantine", expected=expected_one_of(runner, state)
            )
        del state[runner]


@contextmanager
def _changing(folder: Path | None) -> Iterator[dict[str, Any]]:
    """Read the state, and write it back, while nobody else does."""
    place = folder or state_folder()
    lock = open_shared(place / LOCK)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            state = json.loads((place / QUARANTINE).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            state = {}
        yield state
        write_whole(place / QUARANTINE, json.dumps(state, indent=1, sort_keys=True))
    finally:
        os.close(lock)
