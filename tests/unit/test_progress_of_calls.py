"""How far calls to a server are, from events that a rank wrote: of one that is not as it should be nothing is said."""

from __future__ import annotations

from typing import Any

import pytest

from paceline.drivers.progress import calls_text

GOOD: dict[str, Any] = {"label": "mine", "done": 30, "failed": 2, "sent": 36, "of": 100, "after_s": 3.0}


def test_numbers_and_the_rate_are_told() -> None:
    assert calls_text(GOOD, {"mine"}) == "mine: 30 of 100 answered, 4 under way, 2 failed, 10.0/s"
    assert (
        calls_text({**GOOD, "failed": 0, "after_s": 0}, {"mine"}) == "mine: 30 of 100 answered, 6 under way"
    )


@pytest.mark.parametrize(
    "wrong",
    [
        {"label": "\x1b[2Jmine"},
        {"label": ["mine"]},
        {"label": None},
        {"done": "many"},
        {"done": -1},
        {"of": None},
        {"after_s": float("nan")},
        {"sent": float("inf")},
        {"failed": 10**400},
    ],
)
def test_of_an_event_that_is_wrong_nothing_is_said(wrong: dict[str, Any]) -> None:
    assert calls_text({**GOOD, **wrong}, frozenset({"mine"})) == ""
    assert calls_text({"event": "progress"}, frozenset({"mine"})) == ""
