"""A claim states the number of the headline that it hangs on: doctored sheets and suites are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.base.errors import UserErrors
from paceline.spec import content
from paceline.spec.ledger.papers import Headline
from paceline.spec.suites.quotes import quote_errors
from paceline.spec.suites.suite_file import load_suite

SUITE = "reasoning/tool-calls"
CLAIM = "compiler-faster-than-react"


def mistakes(says: str, claim: str = CLAIM) -> list[str]:
    """Return what is wrong with the suite beside a sheet of one headline; its claim quotes "up to 3.7x"."""
    suite = load_suite(content.find_suite(SUITE))
    sheet = suite.papers["llmcompiler"].model_copy(
        update={"headlines": (Headline.model_validate({"says": says, "claims": [claim]}),)}
    )
    errors = quote_errors(suite.model, {**suite.papers, "llmcompiler": sheet}, suite.located)
    return [f"{error.what} ({error.expected})" for error in errors]


@pytest.mark.parametrize(
    ("says", "wanted"),
    [
        ("up to 4.1x faster than ReAct", "3.7 is not"),
        ("up to 37x faster than ReAct", "3.7 is not"),
        ("faster than ReAct (no number)", "3.7 is not"),
        ("3.7x faster than ReAct", "'up to' in both or in neither"),
    ],
)
def test_a_quote_with_another_number_than_its_headlines_is_refused(says: str, wanted: str) -> None:
    (mistake,) = mistakes(says)
    assert CLAIM in mistake
    assert says in mistake
    assert wanted in mistake


@pytest.mark.parametrize(
    "says", ["up to 3.7x faster than ReAct", "up to 3.7x faster than ReAct, of 16 calls and more"]
)
def test_a_quote_that_says_what_its_headline_does_is_none(says: str) -> None:
    assert mistakes(says) == []


def test_a_headline_that_lists_another_claim_does_not_speak_of_this_one() -> None:
    assert mistakes("up to 4.1x faster", claim="another") == []


def test_a_suite_whose_quote_drops_the_best_case_does_not_load(tmp_path: Path) -> None:
    text = content.find_suite(SUITE).read_text(encoding="utf-8")
    quote = "number: up to 3.7x faster than ReAct"
    assert quote in text
    path = tmp_path / "suite.yaml"
    path.write_text(text.replace(quote, "number: 3.7x faster than ReAct"), encoding="utf-8")
    with pytest.raises(
        UserErrors, match=r"quotes '3\.7x faster than ReAct', and its headline says 'up to 3\.7x"
    ):
        load_suite(path)
