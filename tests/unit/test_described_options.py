"""What a suite says of options and of trials: numbers of descriptions, and settings at the edge of a sweep."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
import suite_text

from paceline.base.families.family import Scalar
from paceline.spec.suites.described import described_errors
from paceline.spec.suites.tuning import Choice, edge_errors

CLAIM = """\
    expect: {ratio_at_most: 1.5}
"""


def choice(label: str, technique: str = "ring", **options: Scalar) -> Choice:
    return Choice(technique=technique, label=label, options=options, defaults={})


def problems(folder: Path, description: str, arms: Iterable[Choice]) -> list[str]:
    suite = suite_text.load(folder, (CLAIM, f"{CLAIM}    description: {description}\n"))
    return [error.what for error in described_errors(suite.model, arms, suite.located)]


@pytest.mark.parametrize(
    ("description", "found"),
    [
        ("against five directions a step", "five directions, and its arms have 2 and 10"),
        ("rounds of a server, against 5 directions", "5 directions, and its arms have 2 and 10"),
        ("five local steps", "five local steps, and its arms have 20"),
        ("twenty local steps of 3 directions", "3 directions, and its arms have 2 and 10"),
        ("with ten directions", None),
        ("two directions, which need the fewest", None),
        ("five steps", None),
        ("directions of five kinds", None),
        ("four ranks, which points vary", None),
        ("one direction at a time", None),
        ("five local or global steps", None),
    ],
)
def test_a_description_gives_the_numbers_of_arms_that_it_measures(
    tmp_path: Path, description: str, found: str | None
) -> None:
    arms = [
        choice("ring", directions=10, ranks=2, smooth=True, local_steps=20),
        choice("native", directions=2),
    ]
    told = problems(tmp_path, description, arms)
    assert (found is None) == (not told) and all(found is None or found in what for what in told)


def test_an_arm_of_another_claim_does_not_count(tmp_path: Path) -> None:
    arms = [choice("ring", directions=10), choice("tree", directions=5)]
    assert len(problems(tmp_path, "against five directions", arms)) == 1


def at_the_edge(folder: Path, words: str, used: Choice, *values: float, **others: list[Scalar]) -> list[str]:
    suite = suite_text.load(folder)
    tried = [choice(f"t{i}", rate=v, **{k: o[i] for k, o in others.items()}) for i, v in enumerate(values)]
    return [e.what for e in edge_errors(words, {("techniques", 1): used}, tried, suite.located)]


@pytest.mark.parametrize(("rate", "said"), [(8.0, True), (1.0, True), (4.0, False), (2.0, False)])
def test_the_last_of_a_sweep_is_said_to_be_the_last(tmp_path: Path, rate: float, said: bool) -> None:
    used = choice("ring", rate=rate)
    told = at_the_edge(tmp_path, "the best of four", used, 1.0, 2.0, 4.0, 8.0)
    assert bool(told) == said and all("is the last that was tried, of 1, 2, 4, 8" in what for what in told)
    assert not at_the_edge(tmp_path, "the best of four, at the edge", used, 1.0, 2.0, 4.0, 8.0)


def test_two_values_and_trials_that_differ_in_more_are_no_sweep(tmp_path: Path) -> None:
    used = choice("ring", rate=2.0)
    assert not at_the_edge(tmp_path, "both", used, 1.0, 2.0)
    assert not at_the_edge(tmp_path, "all", used, 0.5, 1.0, 2.0, decay=[0.9, 0.8, 0.7])
    assert not at_the_edge(tmp_path, "all", choice("tree", "tree", rate=2.0), 0.5, 1.0, 2.0)


def test_what_a_technique_has_by_default_was_not_chosen(tmp_path: Path) -> None:
    own = Choice(technique="ring", label="ring", options={"rate": 0.5}, defaults={"rate": 0.5})
    assert not at_the_edge(tmp_path, "all", own, 0.5, 1.0, 2.0)
