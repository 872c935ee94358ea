"""What servers say of prompts, their lengths and what they found in a cache, is held against what was sent."""

from __future__ import annotations

from typing import Any

import pytest
from test_load_log import DONE, answered, event, token

from paceline.families.serving.core.load.calls import Call, Messages, Prompt, prompt_lengths
from paceline.families.serving.core.load.log.definitions import became
from paceline.families.serving.core.load.log.entries import Log, read_log, write_log
from paceline.families.serving.core.load.log.outcomes import Outcome, outcomes_of
from paceline.families.serving.core.load.log.prompts import (
    cached_share,
    shared_beginnings,
    told_of_prompts,
    unlike_asked,
    warmer_than_asked,
)

ANSWER = 3


def log_of(*usages: dict[str, Any], meant: int | None = 64) -> Log:
    entries = []
    for number, told in enumerate(usages):
        entry = answered([10, 20, 30])
        usage = event(choices=[], usage={"completion_tokens": ANSWER, **told})
        entry.number, entry.asked_prompt_tokens = number, meant
        entry.chunks = [((n + 1) * 10_000_000, token(" t", [n])) for n in range(ANSWER)]
        entry.chunks.append((40_000_000, usage + DONE))
        entries.append(entry)
    return Log(header={}, entries=tuple(entries), processes=())


def read(prompt: int, cached: int | None = None) -> dict[str, Any]:
    details = {} if cached is None else {"prompt_tokens_details": {"cached_tokens": cached}}
    return {"prompt_tokens": prompt, **details}


def outcomes(*usages: dict[str, Any], meant: int | None = 64) -> tuple[Outcome, ...]:
    found = outcomes_of(log_of(*usages, meant=meant))
    assert all(o.ok for o in found)
    return found


def call(number: int, prompt: Prompt, *, after: int | None = None, meant: int | None = None) -> Call:
    return Call(
        number=number,
        prompt=prompt,
        output_tokens=ANSWER,
        at_s=0.0 if after is None else None,
        after=() if after is None else (after,),
        carries=after is not None,
        meant_tokens=meant,
    )


@pytest.mark.parametrize(
    ("counted", "meant", "said"),
    [
        (193, 64, "the server counts 193 tokens a prompt, where 64 were meant"),
        (20, 64, "the server counts 20 tokens a prompt, where 64 were meant"),
        (65, 64, None),  # a token that begins a text
        (90, 64, None),  # a chat's template
        (2150, 2000, None),
        (2250, 2000, "the server counts 2250 tokens a prompt, where 2000 were meant"),
        (193, None, None),
    ],
)
def test_lengths_of_prompts_are_those_that_were_meant_or_it_is_told(
    counted: int, meant: int | None, said: str | None
) -> None:
    assert unlike_asked(outcomes(read(counted), read(counted), meant=meant)) == said


def test_a_servers_own_count_that_is_not_told_says_nothing() -> None:
    silent = outcomes({}, {})
    assert list(told_of_prompts(silent, {0: 0.0, 1: 0.0})) == []
    assert cached_share(silent) is None
    assert cached_share(outcomes(read(64), read(64))) is None


def test_a_server_that_knew_the_prompts_before_the_run_is_warm() -> None:
    fresh = {0: 0.0, 1: 0.0}
    cold, warm = outcomes(read(64, 0), read(64, 0)), outcomes(read(64, 64), read(64, 63))
    assert cached_share(cold) == 0.0
    assert warmer_than_asked(cold, fresh) is None
    assert cached_share(warm) == pytest.approx(127 / 128)
    said = warmer_than_asked(warm, fresh)
    assert said is not None
    assert said.startswith(
        "127 of 128 prompt tokens came from the server's cache, though the run's prompts share 0"
    )
    assert warmer_than_asked(warm, {0: 1.0, 1: 1.0}) is None, (
        "prompts that share their beginnings are found again"
    )
    assert warmer_than_asked(outcomes(read(640, 16), read(640, 16)), fresh) is None, "a chat's template is"


def test_what_prompts_share_is_found_among_ids_words_and_turns() -> None:
    ids = [call(0, (1, 2, 3, 4)), call(1, (1, 2, 9, 9)), call(2, (7, 2, 3, 4)), call(3, (5,), after=0)]
    assert shared_beginnings(ids) == {0: 0.5, 1: 0.5, 2: 0.0, 3: 1.0}
    words = [call(0, "ab cd"), call(1, Messages((("user", "ab xy"),))), call(2, "zz")]
    assert shared_beginnings(words) == {0: pytest.approx(3 / 5), 1: pytest.approx(3 / 5), 2: 0.0}
    assert shared_beginnings([call(0, (1, 2)), call(1, (1, 2))]) == {0: 1.0, 1: 1.0}
    assert shared_beginnings([]) == {}


def test_a_prompt_that_carries_on_is_as_long_as_all_before_it() -> None:
    calls = [
        call(0, (1, 2, 3)),
        call(1, (4, 5), after=0),
        call(2, "and more", meant=7, after=1),
        call(3, "any"),
    ]
    assert prompt_lengths(calls) == {0: 3, 1: 3 + ANSWER + 2, 2: 8 + ANSWER + 7, 3: None}
    unknown = [call(0, "any"), call(1, (4, 5), after=0)]
    assert prompt_lengths(unknown) == {0: None, 1: None}


def test_a_log_keeps_what_was_meant_and_says_so(tmp_path: Any) -> None:
    log = log_of(read(193, 10), read(193, 0))
    write_log(tmp_path / "log.gz", log)
    again = read_log(tmp_path / "log.gz")
    assert [e.asked_prompt_tokens for e in again.entries] == [64, 64]
    said = became(again)
    assert "the server counts 193 tokens a prompt, where 64 were meant" in said
    assert "10 of 386 prompt tokens came from the server's cache" in said
