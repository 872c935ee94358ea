"""Which launch of which process group comes next, and which blocks end with it.

Launches are the outer loop, so that slow drift meets all groups. Blocks that are measured until decided first make
the launches of their first look; then those that can be decided with fewest launches go on to their next look, until
each is decided, has made its most launches, or its time is over. A plan may ask for its suites one by one: then each is
measured in this way to its end before the next begins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Set
from typing import Any

from paceline.worker.launches.stopping import Progress, Why

TOGETHER = 2.0
"""Blocks that need up to this many times as many launches as the one that needs fewest go on together with it."""


class Schedule:
    """The order of a job's launches.

    Args:
        plan: The job's.
        progress: What its results have shown so far; the caller keeps it up to date.
        emit: Writes an event of the launcher's own.
    """

    def __init__(self, plan: Mapping[str, Any], progress: Progress, emit: Callable[..., None]) -> None:
        self._plan = plan
        self._progress = progress
        self._emit = emit
        self._cases = {b["block"]: b["cases"] for b in plan["blocks"]}
        self._made = dict.fromkeys(progress.open, 0)

    def turns(self) -> Iterator[tuple[int, dict[str, Any], frozenset[str]]]:
        """Yield launch number, process group, and the blocks that take part in it."""
        order = self._plan.get("one_by_one")
        if not order:
            yield from self._measured({block["block"] for block in self._plan["blocks"]})
            return
        for suite in order:
            yield from self._measured({b["block"] for b in self._plan["blocks"] if b["suite"] == suite})
            self._emit("suite_complete", suite=suite)

    def _measured(self, blocks: Set[str]) -> Iterator[tuple[int, dict[str, Any], frozenset[str]]]:
        """Yield the launches after which nothing of these blocks is left to be measured."""
        first: dict[str, int] = {}
        for block in self._plan["blocks"]:
            if block["block"] in blocks:
                rule = self._progress.rule(block["block"])
                first[block["block"]] = rule.looks[0] if rule else block["protocol"]["launches"]
        yield from self._stage(first)
        while going := self._next_to_decide(blocks):
            yield from self._stage(going)

    def _next_to_decide(self, blocks: Set[str]) -> dict[str, int]:
        """Return those of the blocks that go on, each with the launches at its next look."""
        still = [name for name in self._progress.open if name in blocks]
        needed = {name: self._progress.turn(name, self._made[name]) for name in still}
        if not needed:
            return {}
        fewest = min(needed.values())
        going: dict[str, int] = {}
        for name, launches in needed.items():
            rule = self._progress.rule(name)
            if rule is not None and launches <= TOGETHER * fewest:
                going[name] = next(look for look in rule.looks if look > self._made[name])
        return going

    def _stage(self, targets: Mapping[str, int]) -> Iterator[tuple[int, dict[str, Any], frozenset[str]]]:
        """Yield the launches that bring blocks to their targets; then look at them."""
        for launch in range(max(targets.values(), default=0)):
            for group in self._plan["groups"]:
                taking = [b for b in group["blocks"] if self._made.get(b, 0) <= launch < targets.get(b, 0)]
                self._end_those_out_of_budget(taking)
                taking = [b for b in taking if b not in self._progress.stopped]
                if taking:
                    yield launch, group, frozenset(taking)
                self._made.update((b, launch + 1) for b in taking if b in self._made)
        for name, launches in targets.items():
            if name in self._made and name not in self._progress.stopped:
                why = self._progress.ends(name, launches)
                if why is not None:
                    self._stop(name, launches, why)

    def _end_those_out_of_budget(self, blocks: list[str]) -> None:
        for name in blocks:
            if (
                name in self._made
                and name not in self._progress.stopped
                and self._progress.out_of_budget(name, self._made[name])
            ):
                launches = max(self._made[name], self._progress.seen[name])
                if not launches:
                    self._say_that_nothing_was_measured(name)
                self._stop(name, max(launches, 1), "budget")

    def _say_that_nothing_was_measured(self, block: str) -> None:
        for case in self._cases[block]:
            self._emit(
                "case_failed",
                block=block,
                case_id=case["case_id"],
                label=case["label"],
                status="skipped",
                reason="the time budget was over before its first launch",
                launch=0,
            )

    def _stop(self, block: str, launches: int, why: Why) -> None:
        self._emit("block_stopped", block=block, launches=launches, why=why)
        self._progress.stopped[block] = launches
