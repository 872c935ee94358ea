"""Whether a block needs more launches: the rule that ends a block once its comparisons are decided.

The plan brings looks, critical values and margins (``paceline.stats.sequential``); here is arithmetic only, because
nothing but torch and numpy is installed beside an accelerator. The verdict that people read is computed again from the
record, at the same level.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median, stdev
from typing import Any, Literal

REACH = 2.0
"""A block is out of reach if it would need more than this many times its most launches, even if true effects helped."""
SAME = 1e-12
"""Log-ratios that differ by less are equal but for rounding."""
STATISTICS: Mapping[str, Callable[[Sequence[float]], float]] = {
    "median": median,
    "mean": fmean,
    "max": max,
    "sum": math.fsum,
    "last": lambda samples: samples[-1],
}
Why = Literal["decided", "nothing to decide", "launches", "budget", "out of reach", "machine busy"]
LEAST_QUIET = 3
"""Launches without others' load that a comparison of times needs: with fewer the machine is busy, and nobody knows."""
BUSY_LOOKS = 3
"""Looks after which a block ends whose launches were disturbed nearly all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Headline:
    """A metric that a suite compares."""

    name: str
    kind: Literal["ratio", "difference"]
    margin: float
    better: str
    statistic: str
    timed: bool = False
    """Whether others' load changes it, so that launches beside it count for nothing."""


class Rule:
    """The stop rule of one suite.

    Args:
        data: As the plan has it: ``looks``; ``critical`` and ``critical_difference``, quantiles of Student's t for
            2, 3, … launches; ``metrics`` with their margins; ``budget_s`` or None.
    """

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.looks: Sequence[int] = data["looks"]
        self.budget_s: float | None = data["budget_s"]
        self.headlines = [Headline(**metric) for metric in data["metrics"]]
        self._critical: Sequence[float] = data["critical"]
        self._critical_difference: Sequence[float] = data["critical_difference"]

    @property
    def most(self) -> int:
        """Launches at the last look."""
        return self.looks[-1]

    def launches_needed(self, values: Sequence[float], headline: Headline, *, hopeful: bool = False) -> float:
        """Predict after how many launches a comparison is decided; at most what there are: it is decided.

        Args:
            values: Log-ratios or differences of the launches so far, technique against baseline.
            headline: The metric.
            hopeful: Suppose that the true effect lies a standard error from the estimate, wherever that helps.

        Returns:
            0 for a comparison that further launches cannot decide: it has no value in at least two of the launches so
            far, or it is a difference in a metric of which no direction is better.
        """
        count = len(values)
        if count < 2:
            return 0
        if max(values) - min(values) < SAME:
            return count  # constant: equivalent or different, whatever the margin
        centre, error = abs(fmean(values)), stdev(values) / math.sqrt(count)
        margin = math.log1p(headline.margin) if headline.kind == "ratio" else headline.margin
        half, half_difference = (c[count - 2] * error for c in (self._critical, self._critical_difference))
        directed = headline.better != "neither"
        if centre + half <= margin or (directed and half_difference < centre):
            return count
        slack, spread = error if hopeful else 0.0, stdev(values)
        ways = [_launches_for(margin - max(centre - slack, 0.0), spread, self._critical)]
        if directed:
            ways.append(_launches_for(centre + slack, spread, self._critical_difference))
        if min(ways) == math.inf:
            return math.inf if directed else 0
        return max(count + 1, min(ways))


class Progress:
    """What the blocks of a job that are measured until decided have shown so far.

    Args:
        plan: The job's; ``plan["stopping"]`` has the run's ``budget_s`` and a rule for each of the ``suites`` that are
            measured until decided.
    """

    def __init__(self, plan: Mapping[str, Any]) -> None:
        stopping = plan.get("stopping") or {"budget_s": None, "suites": {}}
        self._budget_s: float | None = stopping["budget_s"]
        self._rules = {suite: Rule(data) for suite, data in stopping["suites"].items()}
        self._blocks = {b["block"]: b for b in plan["blocks"] if self._rules and b["suite"] in self._rules}
        self._values: dict[tuple[str, str, str], dict[int, float]] = defaultdict(dict)
        """(block, label, metric) → launch → value."""
        self._failed: set[tuple[str, str]] = set()
        self._spent_s: dict[str, float] = defaultdict(float)
        self._disturbed: dict[str, set[int]] = defaultdict(set)
        """Block → launches of which others' load took a part."""
        self.seen: dict[str, int] = defaultdict(int)
        """Block → launches of which there is a result."""
        self.stopped: dict[str, int] = {}
        """Block → launches after which it ended."""

    @property
    def open(self) -> list[str]:
        """Blocks that are measured until decided, and are not."""
        return [name for name in self._blocks if name not in self.stopped]

    def rule(self, block: str) -> Rule | None:
        """Return the rule of a block; None where the number of launches is fixed."""
        return self._rules[self._blocks[block]["suite"]] if block in self._blocks else None

    def take(self, event: Mapping[str, Any]) -> None:
        """Note a result, a failure, the time of a launch, or that a block has ended."""
        kind = event["event"]
        if kind == "launch_end":
            for suite, seconds in event.get("spent_s", {}).items():
                self._spent_s[suite] += seconds
            for name in event.get("disturbed", ()):
                self._disturbed[name].add(event["launch"])
        block = self._blocks.get(event.get("block", ""))
        if block is None:
            return
        if kind in ("result", "case_failed"):
            self.seen[block["block"]] = max(self.seen[block["block"]], event["launch"] + 1)
        if kind == "block_stopped":
            self.stopped[block["block"]] = event["launches"]
        elif (kind == "case_failed" and event["status"] != "infrastructure") or (
            kind == "result" and event["status"] != "ok"
        ):
            self._failed.add((block["block"], event["label"]))
        elif kind == "result":
            for headline in self._rules[block["suite"]].headlines:
                samples = event["metrics"].get(headline.name, {}).get("samples")
                if samples:
                    key = block["block"], event["label"], headline.name
                    self._values[key][event["launch"]] = STATISTICS[headline.statistic](samples)

    def spent(self, blocks: Sequence[Mapping[str, Any]], elapsed_s: float) -> dict[str, Any]:
        """Return what the end of a launch says of its time where a budget may end it: each suite's seconds.

        Suites that share a process group share its time by their numbers of blocks in it.
        """
        if not any(b["block"] in self._blocks for b in blocks):
            return {}
        shares: dict[str, float] = defaultdict(float)
        for block in blocks:
            shares[block["suite"]] += elapsed_s / len(blocks)
        return {"spent_s": {suite: round(seconds, 3) for suite, seconds in shares.items()}}

    def out_of_budget(self, block: str, launches: int) -> bool:
        """Tell whether the time of the run is over, or that of a block's suite for what follows its first look."""
        suite = self._blocks[block]["suite"]
        rule = self._rules[suite]
        over = rule.budget_s is not None and self._spent_s[suite] >= rule.budget_s
        return (over and launches >= rule.looks[0]) or (
            self._budget_s is not None and sum(self._spent_s.values()) >= self._budget_s
        )

    def ends(self, block: str, launches: int) -> Why | None:
        """Return why a block ends after so many launches, which are one of its looks, or None: it goes on."""
        rule = self._rules[self._blocks[block]["suite"]]
        needed = self.launches_needed(block, launches)
        if not any(n for n, _ in needed):
            return "nothing to decide"
        left = [n for n, count in needed if n > count]
        if not left:
            return "decided"
        if launches == rule.most:
            return "launches"
        if self._too_disturbed(block, launches):
            return "machine busy" if launches >= rule.looks[:BUSY_LOOKS][-1] else None
        hopes = [n for n, count in self.launches_needed(block, launches, hopeful=True) if n > count]
        hopeless = launches > rule.looks[0] and min(hopes) > REACH * rule.most
        return "out of reach" if hopeless else None

    def _too_disturbed(self, block: str, launches: int) -> bool:
        """Tell whether fewer of the first launches were quiet than a comparison of times needs."""
        timed = any(headline.timed for headline in self._rules[self._blocks[block]["suite"]].headlines)
        return timed and launches - sum(k < launches for k in self._disturbed[block]) < LEAST_QUIET

    def launches_needed(self, block: str, launches: int, *, hopeful: bool = False) -> list[tuple[float, int]]:
        """Return for each comparison of a block how many launches it needs, by the first launches, and how many it has.

        A technique that has failed is compared no more. Of times, launches beside others' load count for nothing.
        """
        found = self._blocks[block]
        rule = self._rules[found["suite"]]
        needed: list[tuple[float, int]] = []
        for headline in rule.headlines:
            base = self._values.get((block, found["baseline"], headline.name), {})
            for case in found["cases"]:
                key = block, case["label"], headline.name
                if case["label"] == found["baseline"] or (block, case["label"]) in self._failed:
                    continue
                aside = self._disturbed[block] if headline.timed else set()
                made = {k: v for k, v in self._values.get(key, {}).items() if k < launches}
                quiet = {k: v for k, v in made.items() if k not in aside}
                values = paired(quiet, base, headline.kind)
                if len(quiet) < min(LEAST_QUIET, len(made)) and paired(made, base, headline.kind):
                    needed.append((math.inf, len(values)))
                    continue
                needed.append((rule.launches_needed(values, headline, hopeful=hopeful), len(values)))
        return needed

    def turn(self, block: str, launches: int) -> float:
        """Return after how many launches a block can be expected to be decided."""
        return max((n for n, count in self.launches_needed(block, launches) if n > count), default=0.0)


def _launches_for(half: float, spread: float, critical: Sequence[float]) -> float:
    """Return after how many launches an interval's half is as short as asked for."""
    if half <= 0:
        return math.inf
    for index, quantile in enumerate(critical):
        if quantile * spread <= half * math.sqrt(index + 2):
            return index + 2
    return (critical[-1] * spread / half) ** 2


def paired(technique: Mapping[int, float], baseline: Mapping[int, float], kind: str) -> list[float]:
    """Return log-ratios or differences of the launches that both have; none of ratios with a side that is zero."""
    pairs = [(technique[k], baseline[k]) for k in sorted(technique.keys() & baseline.keys())]
    if kind == "difference":
        return [a - b for a, b in pairs]
    if any(a <= 0 or b <= 0 for a, b in pairs):
        return []
    return [math.log(a) - math.log(b) for a, b in pairs]
