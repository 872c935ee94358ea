"""Parts of an evaluation by themselves: answers of servers, pauses, limits, a journal that was cut off, options."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from paceline.base.errors import UserError
from paceline.families.reasoning.core.backends.chat import pause_of, read_answer, split_thinking
from paceline.workflows.evaluation.asked import budget_of, limits_of, model_of, options_of, prices_of
from paceline.workflows.evaluation.journal import Journal, Kept, Totals
from paceline.workflows.evaluation.methods import choose
from paceline.workflows.evaluation.pace import Budget, Pace, Prices, SpentError

SETTING = {"model": "m", "temperature": 0.6}
KEPT = Kept(text="4", thinking="", finish="stop", tokens=3, prompt_tokens=7, seconds=0.5)


def message(**fields: Any) -> dict[str, Any]:
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "4", **fields}}
    return {"choices": [choice], "usage": {"prompt_tokens": 9, "completion_tokens": 12}}


@pytest.mark.parametrize(
    ("text", "thinking", "answer"),
    [
        ("<think>a b</think>\n\n4", "a b", "4"),
        ("a b</think>4", "a b", "4"),
        ("<think>a b", "a b", ""),
        ("no thought: 4", "", "no thought: 4"),
        ("4 <think> is a word", "", "4 <think> is a word"),
    ],
)
def test_thinking_is_told_from_the_answer(text: str, thinking: str, answer: str) -> None:
    assert split_thinking(text) == (thinking, answer)


def test_thinking_between_marks_of_ones_own_is_told_too() -> None:
    assert split_thinking("[[a b]]4", ("[[", "]]")) == ("a b", "4")
    assert split_thinking("[[a b", ("[[", "]]")) == ("a b", "")
    # A template that opens the thinking itself leaves no mark in the text.
    assert split_thinking("a b", ("", "]]")) == ("a b", "")
    assert split_thinking("a b]]4", ("", "]]")) == ("a b", "4")


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_fields_of_thinking_are_read_and_none_is_an_answer(name: str) -> None:
    (choice,) = read_answer(message(**{name: "a b"}), 1.0).choices
    assert (choice.thinking, choice.text, choice.tokens) == ("a b", "4", 12)
    (cut,) = read_answer(message(content=None, **{name: "a b"}), 1.0).choices
    assert (cut.thinking, cut.text) == ("a b", "")


def test_tokens_of_several_texts_are_shared_out_and_their_sum_is_the_servers() -> None:
    found = message()
    found["choices"] = [
        {"index": place, "finish_reason": "stop", "message": {"content": "x" * size}}
        for place, size in ((1, 7), (0, 30), (2, 0))
    ]
    answer = read_answer(found, 1.0)
    assert [len(one.text) for one in answer.choices] == [30, 7, 0]
    assert sum(one.tokens for one in answer.choices) == 12
    assert answer.choices[0].tokens > answer.choices[1].tokens > 0


def test_what_a_server_read_before_is_known_by_either_name() -> None:
    found = message()
    assert read_answer(found, 1.0).cached_tokens is None
    found["usage"]["prompt_cache_hit_tokens"] = 5
    assert read_answer(found, 1.0).cached_tokens == 5
    found["usage"]["prompt_tokens_details"] = {"cached_tokens": 8}
    assert read_answer(found, 1.0).cached_tokens == 8


@pytest.mark.parametrize(
    "wrong", [{}, {"choices": []}, {"usage": {"prompt_tokens": 1, "completion_tokens": 1}}, {"choices": [{}]}]
)
def test_an_answer_without_what_the_interface_says_is_none(wrong: dict[str, Any]) -> None:
    with pytest.raises((KeyError, ValueError)):
        read_answer(wrong, 1.0)


def test_pauses_are_read_as_seconds_milliseconds_and_dates() -> None:
    assert pause_of({"retry-after": "7"}, 0.0) == 7
    assert pause_of({"retry-after-ms": "250", "retry-after": "7"}, 0.0) == 0.25
    assert pause_of({"retry-after": "Thu, 01 Jan 1970 00:01:40 GMT"}, 40.0) == 60
    assert pause_of({"retry-after": "Thu, 01 Jan 1970 00:01:40 GMT"}, 400.0) == 0
    assert pause_of({"retry-after": "soon"}, 0.0) is None
    assert pause_of({}, 0.0) is None


class Hours:
    """A clock that goes on only while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.now += seconds


def pace(hours: Hours, totals: Totals | None = None, **given: Any) -> Pace:
    known = {"requests": None, "tokens": None, "budget": Budget(), "prices": None, **given}
    return Pace(**known, totals=totals or Totals(), clock=hours, sleep=hours.sleep)


def test_no_minute_has_more_requests_or_tokens_than_the_limit() -> None:
    hours = Hours()
    limited = pace(hours, requests=3)
    left = []
    for _ in range(8):
        limited.leave(1)
        left.append(hours.now)
    assert all(later - earlier >= 60 for earlier, later in zip(left, left[3:], strict=False))
    hours = Hours()
    limited, times = pace(hours, tokens=100), []
    for _ in range(6):
        limited.settle(limited.leave(80), 40)
        times.append(hours.now)
    # Forty that were used and eighty that are reserved do not fit beside each other twice.
    assert times == sorted(times) and times[1] >= 60
    limited.leave(500)  # more than the limit by itself: alone


def test_what_a_server_asks_to_wait_holds_every_request() -> None:
    hours = Hours()
    held = pace(hours)
    held.hold(12.5)
    held.leave(1)
    assert hours.now == pytest.approx(12.5)
    assert held.waited_s > 0


def test_nothing_leaves_behind_a_budget() -> None:
    totals, hours = Totals(prompt_tokens=600, completion_tokens=400), Hours()
    prices = Prices(prompt=1.0, completion=10.0, cached=0.5)
    assert prices.cost(1e6, 2e6, 4e5) == pytest.approx(0.6 + 0.2 + 20)
    pace(hours, totals, budget=Budget(tokens=1001)).leave(1)
    with pytest.raises(SpentError, match="1,000 tokens"):
        pace(hours, totals, budget=Budget(tokens=1000)).leave(1)
    with pytest.raises(SpentError, match="in money"):
        pace(hours, totals, budget=Budget(money=0.0046), prices=prices).leave(1)
    timed = pace(hours, budget=Budget(seconds=30))
    hours.now += 30
    with pytest.raises(SpentError, match="30 s"):
        timed.leave(1)


def test_two_runs_at_once_are_refused(tmp_path: Path) -> None:
    with Journal(tmp_path, SETTING, resume=False):
        for resume in (False, True):
            with pytest.raises(UserError, match="another process is at work on it"):
                Journal(tmp_path, SETTING, resume=resume)
    Journal(tmp_path, SETTING, resume=True).__exit__(None, None, None)


def test_a_journal_that_was_cut_off_in_a_line_goes_on_without_it(tmp_path: Path) -> None:
    with Journal(tmp_path, SETTING, resume=False) as journal:
        for number in (0, 1):
            name = journal.name()
            journal.sent(name, 5, "trace")
            journal.answered(
                name, 5, {number: KEPT}, prompt_tokens=7, completion_tokens=3, cached_tokens=2, seconds=0.5
            )
        journal.sent(journal.name(), 5, "trace")
    path = tmp_path / "journal.jsonl"
    path.write_bytes(path.read_bytes()[:-9])
    with Journal(tmp_path, SETTING, resume=True) as journal:
        assert sorted(journal.shelf(5).traces) == [0, 1]
        assert journal.shelf(5).traces[0] == KEPT
        assert (journal.totals.requests, journal.totals.lost, journal.totals.cached_tokens) == (2, 0, 4)
        assert journal.name() == "r3"
        journal.sent("r3", 5, "trace")
    with Journal(tmp_path, SETTING, resume=True) as journal:
        assert journal.totals.lost == 1
    path.write_bytes(path.read_bytes().replace(b'"sent"', b'"sent', 1))
    with pytest.raises(UserError, match=r"journal\.jsonl:2: the line is damaged"):
        Journal(tmp_path, SETTING, resume=True)
    with pytest.raises(UserError, match="nothing to go on with"):
        Journal(tmp_path / "other", SETTING, resume=True)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: model_of("gpt"), "is none that is evaluated here"),
        (lambda: model_of("openai:http://host/v1"), "is not openai:URL#MODEL"),
        (lambda: model_of("openai:http://user:pw@host/v1#m"), "holds a key"),
        (lambda: prices_of("in=1"), "a price for prompts and one for completions"),
        (lambda: prices_of("in=1,out=x"), "'x' is no amount"),
        (lambda: prices_of("in=1,in=2"), "sets it twice"),
        (lambda: budget_of("hours=3", None), "sets nothing that is known"),
        (lambda: budget_of("time=soon", None), "soon"),
        (lambda: limits_of("requests=-3"), "'-3' is no amount"),
        (lambda: options_of(["a"], "--extra"), "'a' sets nothing"),
        (lambda: choose("greedy,greedy"), "named twice"),
        (lambda: choose("gredy"), "greedy"),
        (lambda: choose("esc:window"), "'window' sets nothing"),
    ],
)
def test_what_makes_no_sense_is_refused_in_words(call: Any, said: str) -> None:
    with pytest.raises(UserError, match=said):
        call()


def test_amounts_may_end_in_letters() -> None:
    assert limits_of("requests=60,tokens=1.5M") == {"requests": 60, "tokens": 1.5e6}
    assert budget_of("time=2min,tokens=5k", None) == Budget(seconds=120, tokens=5000)
    assert options_of(["enable_thinking=false", "name=a"], "--extra") == {
        "enable_thinking": False,
        "name": "a",
    }


def test_intervals_and_windows_follow_the_length_of_traces() -> None:
    (dynasor,) = choose("dynasor")
    assert dynasor.scaled(900).options == {"chunk": 160}
    (given,) = choose("dynasor:chunk=7")
    assert given.scaled(900).options == {"chunk": 7}
    assert json.dumps(choose("esc:window=2")[0].scaled(900).options) == '{"window": 2}'
