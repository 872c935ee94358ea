"""Runs that are no nights of a trend: of an old commit that was measured late, or of a machine that others took.

Nights are in the order of time, which is the order of the code as long as each night measures what is newest. Somebody
who looks for the commit that changed something measures old ones again. Such a run stands behind nights of newer code,
and says nothing about what the code became. Only ancestry tells: of two branches that diverged neither is the older
one, a reverted change is a new commit, and the same commit measured again is a night like any other.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from paceline.records.format.record import Run
from paceline.records.origin.ancestry import IsAncestor


@dataclass(frozen=True, slots=True, kw_only=True)
class Late:
    """A run of a commit that is an ancestor of one which an earlier night measured."""

    run_id: str
    started: str
    commit: str
    dirty: bool
    """Whether there were uncommitted changes on top of the commit."""
    newer: str
    """The commit of the earlier night."""
    newer_run: str
    newer_started: str

    @property
    def why(self) -> str:
        """Say why it is left out."""
        changes = " with uncommitted changes" if self.dirty else ""
        return (
            f"its commit {self.commit[:10]}{changes} is an ancestor of {self.newer[:10]}, "
            f"which was measured before, on {self.newer_started[:10]}"
        )

    @property
    def text(self) -> str:
        """Say which run is left out and why."""
        return f"{self.started[:10]}, run {self.run_id}: {self.why}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Busy:
    """A run in which others took the machine in all but a few launches of a series."""

    run_id: str
    started: str
    who: str

    @property
    def why(self) -> str:
        """Say why it is left out."""
        return f"machine busy: {self.who}"

    @property
    def text(self) -> str:
        """Say which run is left out and why."""
        return f"{self.started[:10]}, run {self.run_id}: {self.why}"


def late_runs(runs: Iterable[Run], is_ancestor: IsAncestor) -> dict[str, Late]:
    """Return the runs of old commits that were measured after newer ones, by their ids.

    What a night of the schedule measures is held against such nights only: a run that somebody made of a branch says
    nothing about which code is newest.

    Args:
        runs: Those of one series, in any order.
        is_ancestor: What is known of their commits.
    """
    heads: dict[bool, list[Run]] = {False: [], True: []}
    found = {}
    for run in sorted(runs, key=lambda r: (r.started, r.run_id)):
        commit = _commit(run)
        scheduled = run.reason == "nightly"
        newer = next((h for h in heads[scheduled] if is_ancestor(commit, _commit(h))), None)
        if newer is not None:
            found[run.run_id] = _late(run, newer)
            continue
        for kind in {False, scheduled}:
            others = [h for h in heads[kind] if _commit(h) != commit and not is_ancestor(_commit(h), commit)]
            heads[kind] = [*others, run]
    return found


def _commit(run: Run) -> str:
    return str(run.code.get("commit"))


def _late(run: Run, newer: Run) -> Late:
    return Late(
        run_id=run.run_id,
        started=run.started,
        commit=_commit(run),
        dirty=bool(run.code.get("dirty")),
        newer=_commit(newer),
        newer_run=newer.run_id,
        newer_started=newer.started,
    )
