"""Pages that set one run against an earlier one: figures, and what else differs."""

from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path
from typing import Any

import record_factory as factory
from click.testing import CliRunner

from paceline.analysis.runs import compare_runs
from paceline.cli import application
from paceline.records.store.folder import Loaded, RunRecord, load
from paceline.report.runs.comparison import NEWEST, all_pairs, choices, differences, pairs
from paceline.report.site.build import SiteInput, render_site
from paceline.report.tables.results import run_comparison_table


def record_of(values: tuple[float, ...], **changes: Any) -> RunRecord:
    run = factory.make_run(**changes)
    lines = factory.launches(run, "native", [2.0, 2.1]) + factory.launches(run, "ring", values)
    return factory.in_memory(run, lines)


def ids(records: list[RunRecord]) -> list[tuple[str, str, str]]:
    return [(p.later.run_id, p.earlier.run_id, p.why) for p in pairs(records)]


def test_a_run_is_set_against_the_one_before_of_its_own_kind() -> None:
    other_host = {"host_class": "Another CPU, 2 cores, 16 GiB"}
    first, second, elsewhere, third = (
        record_of((1.0, 1.1)),
        record_of((1.0, 1.1)),
        record_of((1.0, 1.1), **other_host),
        record_of((1.0, 1.1)),
    )
    named = record_of((1.0, 1.1), runner={"name": "netns-cpu"})
    boxed = record_of((1.0, 1.1), container={"image_class": "slim"})
    records = [third, named, boxed, first, elsewhere, second]
    assert ids(records) == [
        (second.run_id, first.run_id, "the run before"),
        (third.run_id, second.run_id, "the run before"),
    ]


def test_a_run_is_set_against_the_one_that_it_repeats() -> None:
    first, second = record_of((1.0, 1.1)), record_of((1.0, 1.1))
    again = record_of((1.0, 1.1), linked_run=first.run_id, reason="reproduce")
    assert ids([first, second, again])[1:] == [
        (again.run_id, second.run_id, "the run before"),
        (again.run_id, first.run_id, "the run that it repeats"),
    ]
    directly = record_of((1.0, 1.1), linked_run=second.run_id)
    assert ids([second, directly]) == [(directly.run_id, second.run_id, "the run before")]


def test_corrections_and_calibrations_stand_beside_nothing() -> None:
    first = record_of((1.0, 1.1))
    others = [record_of((1.0, 1.1), reason="calibrate")]
    assert ids([first, *others]) == []


def test_what_differs_is_named_by_part() -> None:
    common = {
        "flags": {"num_threads": 1},
        "environment": {"OMP_NUM_THREADS": "1"},
        "host": {"cpu": "Some CPU", "caches": {"L1": "32K"}},
    }
    left = factory.make_run(
        **common,
        packages={"python": "3.11", "freeze": ["numpy==2.0", "torch==2.13", "private @ file:///x"]},
        techniques={"collectives/ring": {"sha256": "11" * 32}, "collectives/tree": {"sha256": "22" * 32}},
        seeds={"seed": 1},
    )
    right = factory.make_run(
        **common | {"flags": {"num_threads": 2}},
        packages={"python": "3.12", "freeze": ["numpy==2.1", "torch==2.13"]},
        techniques={"collectives/ring": {"sha256": "33" * 32}, "collectives/star": {"sha256": "22" * 32}},
        seeds={"seed": 2},
        code={"commit": "beef", "dirty": False, "diff": "long"},
    )
    assert sorted(differences(left, right)) == [
        ("code", "commit", "c0ffee", "beef"),
        ("package", "Python", "3.11", "3.12"),
        ("package", "numpy", "2.0", "2.1"),
        ("package", "private @ file:///x", "private @ file:///x", "–"),
        ("settings", "num_threads", "1", "2"),
        ("technique", "collectives/ring", "11" * 6, "33" * 6),
    ]
    assert differences(left, left) == []


def test_a_pairs_page_has_the_figures_of_both_runs_and_is_linked_from_the_later(tmp_path: Path) -> None:
    first = record_of((1.0, 1.1, 1.05), packages={"freeze": ["numpy==2.0"]})
    second = record_of((4.0, 4.4, 4.2), packages={"freeze": ["numpy==2.1"]})
    pages = dict(render_site(SiteInput(loaded=Loaded(records=[first, second]))))
    (name,) = (n for n in pages if n.startswith("compare/"))
    assert f'href="../{name}"' in pages[f"runs/{second.run_id}.html"]
    assert "compare/" not in pages[f"runs/{first.run_id}.html"]
    page = pages[name]
    assert f'href="../runs/{first.run_id}.html"' in page
    assert f"paceline compare {second.run_id} {first.run_id}" in page
    for c in compare_runs(second, first):
        assert c.q_value is not None
        assert f"<span>{c.q_value:.2g}</span>" in page
        assert f"<span>{c.verdict.name}</span>" in page  # on any machine: whatever it is
    assert "<span>numpy</span>" in page


def test_a_difference_is_called_one_beside_ratios() -> None:
    def run_with(errors: tuple[float, ...]) -> RunRecord:
        suites = [{**factory.make_run().suites[0], "metrics": {"latency": 0.02, "relative_l2_error": 0.01}}]
        run = factory.make_run(suites=suites)
        lines = factory.launches(run, "ring", [1.0, 1.01, 0.99, 1.0])
        return factory.in_memory(
            run, [*lines, *factory.launches(run, "ring", errors, metric="relative_l2_error")]
        )

    later, earlier = run_with((0.30, 0.31, 0.29, 0.30)), run_with((0.10, 0.11, 0.09, 0.10))
    table = run_comparison_table(compare_runs(later, earlier), "later", "earlier")
    at, metric = table.headers.index("left against right"), table.headers.index("metric")
    told = {row[metric]: row[at] for row in table.rows}
    assert told["latency"].startswith("1 × [")
    assert told["relative_l2_error"].startswith("difference 0.2 [")


def test_a_pair_that_must_not_be_compared_says_why() -> None:
    first = record_of((1.0, 1.1))
    again = record_of((1.0, 1.1), linked_run=first.run_id, host_class="Another CPU, 2 cores, 16 GiB")
    pages = dict(render_site(SiteInput(loaded=Loaded(records=[first, again]))))
    (name,) = (n for n in pages if n.startswith("compare/"))
    assert "They are not compared: host classes differ" in pages[name]


def test_the_command_names_what_differs_too(tmp_path: Path) -> None:
    for version in ("2.0", "2.1"):
        factory.simple(tmp_path, packages={"freeze": [f"numpy=={version}"]})
    first, second = load([tmp_path]).records
    told = CliRunner().invoke(
        application, ["compare", second.run_id, first.run_id, "--results", str(tmp_path)]
    )
    assert told.exit_code == 0, told.output
    assert "what else differs" in told.output
    assert "numpy" in told.output


def test_any_two_of_the_newest_runs_of_a_kind_have_one_page_and_older_ones_only_their_own() -> None:
    records = [record_of((1.0, 1.1, 1.05)) for _ in range(6)]
    elsewhere = record_of((1.0, 1.1, 1.05), host_class="Another CPU, 2 cores, 16 GiB")
    (choice,) = choices([*records, elsewhere])
    newest = [r.run_id for r in reversed(records)][:NEWEST]
    assert [r.run_id for r in choice.runs] == newest
    found = {frozenset((p.later.run_id, p.earlier.run_id)) for p in choice.pairs}
    assert found == {frozenset(two) for two in combinations(newest, 2)}
    assert all(p.later.run_id > p.earlier.run_id for p in choice.pairs)
    linked = list(pairs(records))
    everything = all_pairs(linked, [choice])
    assert len({p.href for p in everything}) == len(everything) == 5 + 3
    assert everything[: len(linked)] == linked


def test_the_page_of_choices_leads_to_pages_that_exist_without_scripts() -> None:
    records = [record_of((1.0 + i, 1.1 + i, 1.05 + i)) for i in range(3)]
    pages = dict(render_site(SiteInput(loaded=Loaded(records=records))))
    linked = set(re.findall(r'href="(compare/[^"]+)"', str(pages["comparisons.html"])))
    assert linked == {name for name in pages if name.startswith("compare/")}
    assert len(linked) == 3
    assert 'href="comparisons.html"' in str(pages["runs.html"])
