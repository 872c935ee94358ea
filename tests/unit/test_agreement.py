"""When ranks' models are the same: each schedule fits what it says and nothing else."""

from __future__ import annotations

import pytest

from paceline.families.training.core.planning.promises import Training
from paceline.families.training.core.proofs.agreement import SHARED, breach, mismatch

ROUND = 3
STEPS = 8
"""Two rounds of three steps and one of two."""


def seen(inside: str, *meetings: str) -> list[list[str]]:
    """Return digests of four ranks at every step: as in ``inside``, but in each step that begins a round as there."""
    rows = [list("aaaa")]
    for at in range(1, STEPS + 1):
        begins = at % ROUND == 0 or at == STEPS
        letters = meetings[min((at - 1) // ROUND, len(meetings) - 1)] if begins else inside
        rows.append([f"{letter}{at}" for letter in letters])
    return rows


PATTERNS = {
    "always": seen("aaaa", "aaaa"),
    "rounds": seen("abcd", "aaaa"),
    "pairs": seen("abcd", "aabb", "abac", "abcd"),
    "pairs-then-all": seen("abcd", "aabb", "abac", "aaaa"),
    "never": seen("abcd", "abcd"),
}


@pytest.mark.parametrize("said", PATTERNS)
@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_schedule_fits_its_own_pattern_alone(said: str, pattern: str) -> None:
    found = mismatch(said, PATTERNS[pattern], ROUND)
    assert (found is None) == (said == pattern), found


@pytest.mark.parametrize(
    ("said", "rows", "text"),
    [
        ("rounds", seen("abcd", "aaab"), "in step 4 ranks' models are the same in groups of 3, 1"),
        ("rounds", seen("abcc", "aaaa"), "in step 2 ranks' models are the same in groups of 2, 1, 1"),
        ("rounds", seen("abcd", "aaaa", "aaaa", "abcd"), "at the end ranks' models are all different"),
        ("pairs", seen("abcd", "aaab"), "in step 4 ranks' models are the same in groups of 3, 1"),
        ("pairs", seen("abcd", "abcd"), "in step 4 ranks' models are all different"),
        ("pairs", seen("abcd", "aabb", "aaab"), "in step 7 ranks' models are the same in groups of 3, 1"),
        ("pairs-then-all", PATTERNS["pairs"], "at the end ranks' models are all different"),
        ("pairs", seen("aabb", "aabb"), "in step 2 ranks' models are the same in groups of 2, 2"),
        (
            "never",
            seen("abcd", "abcd", "abcd", "abca"),
            "at the end ranks' models are the same in groups of 2, 1, 1",
        ),
        ("always", seen("aaaa", "aaaa", "aaab"), "in step 7 ranks' models are the same in groups of 3, 1"),
    ],
)
def test_one_step_that_does_not_fit_is_named(said: str, rows: list[list[str]], text: str) -> None:
    assert mismatch(said, rows, ROUND) == f"{text}, and its property agree says '{said}'"


def test_ranks_that_begin_apart_fit_nothing() -> None:
    for said, rows in PATTERNS.items():
        assert mismatch(said, [list("aaab"), *rows[1:]], ROUND) is not None


def test_two_ranks_are_a_pair_in_every_round_and_of_three_one_sits_out() -> None:
    two = [list("aa"), list("ab"), list("cc"), list("ab"), list("cc")]
    assert mismatch("pairs", two, 2) is None
    assert mismatch("pairs", [*two[:4], list("ab")], 2) is not None
    assert mismatch("pairs", [list("aaa"), list("abc"), list("aba"), list("abc"), list("abc")], 2) is None
    assert mismatch("pairs", [list("aaa"), list("abc"), list("aaa"), list("abc"), list("abc")], 2) is not None


def test_who_shares_a_model_has_nothing_to_agree_on() -> None:
    assert mismatch("rounds", [[SHARED, SHARED]] * 4, 2) is None


def test_by_default_models_are_as_alike_as_what_is_shipped() -> None:
    assert Training(replicas="identical").schedule == "always"
    assert Training(replicas="apart").schedule == "never"
    assert Training(replicas="identical", agree="rounds").schedule == "rounds"


def test_a_schedule_that_cannot_be_checked_is_a_breach() -> None:
    assert breach("rounds", {"sync_every": 3}) is None
    assert breach("always", {}) is None
    assert breach("pairs", {}) == "its property agree says 'pairs', and it has no option sync_every"
    assert breach("often", {}) == (
        "its property agree is one of always, rounds, own-rounds, pairs, pairs-then-all, never, and not 'often'"
    )
