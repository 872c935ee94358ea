"""The findings of the published runs: the README's are those of today's records, and every figure is recomputed."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from paceline.analysis.compare import Comparison
from paceline.cli.publishing.building import site_input
from paceline.cli.publishing.site import findings_text, write_charts
from paceline.report.findings.rules import MOST, Finding
from paceline.report.site.data import Site
from paceline.report.site.kinds.home import found
from paceline.spec.content import shipped_root
from paceline.workflows.stores import load_stores

COMMAND = "paceline site findings --results results/published --most 3 --charts docs/findings"
REDUCED: dict[str, Callable[[Sequence[float]], float]] = {
    "median": statistics.median,
    "mean": statistics.fmean,
    "max": max,
    "sum": math.fsum,
    "last": lambda samples: samples[-1],
}


@pytest.fixture(scope="module")
def site() -> Site:
    return Site(site_input(load_stores(shipped_root() / "results" / "published")))


@pytest.fixture(scope="module")
def made(site: Site) -> list[Finding]:
    return found(site)


def by_launch(site: Site, comparison: Comparison, label: str) -> dict[int, float]:
    """Return a technique's value of each launch, from the raw samples of the record alone."""
    point = comparison.point
    (record,) = [r for r in site.records if r.run_id == point.run.run_id]
    return {
        m.launch: REDUCED[m.metric.statistic](list(m.samples))
        for m in record.measurements
        if (m.suite, m.block, m.label, m.metric.name) == (point.suite, point.block, label, comparison.metric)
        and m.status == "ok"
    }


def test_there_are_findings_of_every_family_and_no_more_than_ten(made: list[Finding]) -> None:
    assert len(made) == MOST
    assert {f.family for f in made} == {
        "collectives",
        "kernels",
        "training",
        "serving",
        "reasoning",
    }  # of programs one suite is published, one of whose claims says nothing
    assert len({f.sentence for f in made}) == MOST
    assert len({f.rule for f in made}) >= 4


def test_every_sentence_states_what_the_raw_samples_say(site: Site, made: list[Finding]) -> None:
    stated = [(f.sentence, c) for f in made for c in f.about]
    assert len(stated) >= 6
    for sentence, comparison in stated:
        own = by_launch(site, comparison, comparison.label)
        base = by_launch(site, comparison, comparison.point.baseline)
        shared = sorted(set(own) & set(base))
        assert len(shared) >= 5, sentence
        if comparison.kind == "ratio":
            ratio = math.exp(statistics.fmean(math.log(own[n] / base[n]) for n in shared))
            assert f"{ratio:.3g} ×" in sentence, (sentence, ratio)
        else:
            difference = statistics.fmean(own[n] - base[n] for n in shared)
            told = [float(t) for t in re.findall(r"difference (-?[\d.e-]+)", sentence)]
            assert any(math.isclose(t, difference, rel_tol=0.01) for t in told), (sentence, difference)


def test_every_direction_is_that_of_the_samples(site: Site, made: list[Finding]) -> None:
    for finding in (f for f in made if f.rule in ("largest", "but worse")):
        gain = finding.about[0]
        own, base = (by_launch(site, gain, name) for name in (gain.label, gain.point.baseline))
        better = [(own[n] < base[n]) == (gain.better == "lower") for n in set(own) & set(base)]
        assert sum(better) > len(better) / 2, finding.sentence


def test_findings_of_claims_are_those_of_the_ledger(site: Site, made: list[Finding]) -> None:
    claims = [f for f in made if f.rule == "claim"]
    assert claims
    failed = {(c.quote, c.paper): c for c in site.claims if c.verdict in ("partly", "not reproduced")}
    for finding in claims:
        quote = finding.sentence[1:].partition("”")[0]
        claim = failed[(quote, finding.href.partition("#")[2])]
        assert claim.premise != "not met"
        assert claim.worst is not None and f"{claim.worst.value:.3g}" in finding.sentence


def test_the_readme_shows_what_the_command_prints(site: Site, tmp_path: Path) -> None:
    root = shipped_root()
    few = found(site, 3)
    drawn = write_charts(few, tmp_path)
    kept = [f"docs/findings/{Path(path).name}" for path in drawn]
    readme = (root / "README.md").read_text(encoding="utf-8")
    assert findings_text(few, kept) in readme, COMMAND
    assert COMMAND in readme
    for fresh, path in zip(drawn, kept, strict=True):
        assert (root / path).read_text(encoding="utf-8") == Path(fresh).read_text(encoding="utf-8"), COMMAND
    assert len(list((root / "docs" / "findings").glob("*.svg"))) == len(kept)
