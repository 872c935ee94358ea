"""What a run that is measured until decided can be expected to decide, by what earlier runs have shown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paceline.analysis.points import Point
from paceline.worker.launches.stopping import Rule, paired


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """How many comparisons can be expected to be decided."""

    num_decided: int
    num_known: int
    """Comparisons that an earlier run has made, at least twice."""
    num_unknown: int
    """Comparisons of points that no earlier run has measured."""
    run_ids: Sequence[str]
    """The runs on which this rests."""


def expected(
    plan: Mapping[str, Any], points: Iterable[Point], launch_s: Mapping[str, float], budget_s: float
) -> Expectation:
    """Predict what a plan decides within a budget.

    All blocks make the launches of their first look; then those that need fewest launches go on, as the launcher has it
    (``paceline.worker.launches.schedule``).

    Args:
        plan: Of suites that are measured until decided.
        points: Of earlier runs, the newest of a block last.
        launch_s: Seconds of a launch of each block.
        budget_s: Of the run; infinite where there is none.
    """
    newest = {point.block: point for point in points}
    rules = {suite: Rule(data) for suite, data in plan["stopping"]["suites"].items()}
    blocks = [b for b in plan["blocks"] if b["suite"] in rules]
    needed = {b["block"]: _needed(b, newest.get(b["block"]), rules[b["suite"]]) for b in blocks}
    left_s = budget_s - sum(rules[b["suite"]].looks[0] * launch_s[b["block"]] for b in blocks)
    decided = sum(n <= rules[b["suite"]].looks[0] for b in blocks for n in needed[b["block"]])
    if left_s < 0 and plan["stopping"]["budget_s"] is not None:
        decided = 0  # launches are the outer loop: time ends before any block had its first look
    for block in sorted(blocks, key=lambda b: max(needed[b["block"]], default=0)):
        rule, own = rules[block["suite"]], needed[block["block"]]
        open_ = [n for n in own if rule.looks[0] < n <= rule.most]
        if not open_:
            continue
        look = next(look for look in rule.looks if look >= max(open_))
        left_s -= (look - rule.looks[0]) * launch_s[block["block"]]
        if left_s < 0:
            break
        decided += len(open_)
    unknown = [b for b in blocks if b["block"] not in newest]
    return Expectation(
        num_decided=decided,
        num_known=sum(map(len, needed.values())),
        num_unknown=sum((len(b["cases"]) - 1) * len(rules[b["suite"]].headlines) for b in unknown),
        run_ids=sorted({newest[b["block"]].run.run_id for b in blocks if b["block"] in newest}),
    )


def _needed(block: Mapping[str, Any], point: Point | None, rule: Rule) -> list[float]:
    """Return after how many launches each comparison of a block is decided, as far as an earlier run tells."""
    found: list[float] = []
    for headline in rule.headlines:
        base = point.cells.get((block["baseline"], headline.name)) if point is not None else None
        for case in block["cases"]:
            cell = point.cells.get((case["label"], headline.name)) if point is not None else None
            if cell is None or base is None or case["label"] == block["baseline"]:
                continue
            values = paired(cell.values, base.values, headline.kind)
            if needed := rule.launches_needed(values, headline):
                found.append(needed)
    return found
