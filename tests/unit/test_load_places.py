"""A closed loop's places: whose they are, and that calls which fail give them back; over real connections, too."""

from __future__ import annotations

import itertools
import socket
from collections.abc import Iterator

import pytest
from test_load_redirects import BODY, Answer, serving
from warm import Warm, warm

from paceline.families.serving.core.load import processes
from paceline.families.serving.core.load.calls import Call, Workload
from paceline.families.serving.core.load.log.events import StreamReader, read_stream
from paceline.families.serving.core.load.log.outcomes import Outcome, counts, outcomes_of
from paceline.families.serving.core.load.processes import run_load
from paceline.families.serving.core.load.sending.client import Limits
from paceline.families.serving.core.load.sending.places import Places

LIMITS = Limits(call_s=60, silence_s=60, run_s=90)


@pytest.fixture(scope="module")
def client() -> Iterator[Warm]:
    with warm(processes.__name__, "httptools", "uvloop") as process:
        yield process


@pytest.fixture(autouse=True)
def _forked(monkeypatch: pytest.MonkeyPatch, client: Warm) -> None:
    monkeypatch.setattr(processes, "subprocess", client)


def sessions(count: int, turns: int = 3, *, concurrency: int) -> Workload:
    """Return sessions of which each turn follows the one before at once."""
    calls: list[Call] = []
    for session in range(count):
        for turn in range(turns):
            number = len(calls)
            after = (number - 1,) if turn else ()
            calls.append(
                Call(
                    number=number,
                    prompt=f"s{session}t{turn}",
                    output_tokens=3,
                    after=after,
                    carries=bool(turn),
                )
            )
    return Workload(calls=tuple(calls), concurrency=concurrency)


def sent(places: Places) -> list[int]:
    found = []
    while (number := places.next()) is not None:
        found.append(number)
    return found


def test_a_place_is_a_sessions_until_its_last_call_has_ended() -> None:
    workload = sessions(3, concurrency=2)
    places = Places(workload, workload.calls)
    assert sent(places) == [0, 3]
    places.ended(0, sent=True)
    assert sent(places) == []  # its next turn is not due yet, and the place is not another session's
    places.add(1)
    assert sent(places) == [1]
    places.ended(1, sent=True)
    places.ended(2, sent=False)  # waited in vain
    assert sent(places) == [6]


def test_a_place_takes_all_calls_that_a_session_begins_with() -> None:
    """The third call waits for both of the first two, which stand behind one place."""
    calls = (
        Call(number=0, prompt="a", output_tokens=3),
        Call(number=1, prompt="b", output_tokens=3),
        Call(number=2, prompt="c", output_tokens=3, after=(0, 1)),
        Call(number=3, prompt="d", output_tokens=3),
    )
    places = Places(Workload(calls=calls, concurrency=1), calls)
    assert sent(places) == [0, 1]


def test_calls_of_an_open_loop_wait_for_its_cap_in_the_order_in_which_they_are_due() -> None:
    calls = tuple(Call(number=n, prompt="a", output_tokens=3, at_s=0.0) for n in range(3))
    places = Places(Workload(calls=calls, cap=2), calls)
    assert sent(places) == []
    for number in (2, 0, 1):
        places.add(number)
    assert sent(places) == [2, 0]
    places.ended(2, sent=True)
    assert sent(places) == [1]


def well(path: str, number: int) -> Answer:
    return (200, "", BODY)


def run(url: str, workload: Workload) -> tuple[Outcome, ...]:
    return outcomes_of(run_load(url, "m", workload, limits=LIMITS))


@pytest.mark.timeout(120)
def test_turns_wait_for_no_place_and_as_many_sessions_are_under_way_as_were_asked_for() -> None:
    with serving(well, delay_s=0.02) as server:
        outcomes = run(server.url, sessions(5, concurrency=2))
    assert counts(outcomes) == {"complete": 15}
    begun = sorted(range(0, 15, 3), key=lambda n: outcomes[n].sent_s or 0.0)
    # No session begins before all but one of those before it have ended.
    for place, number in enumerate(begun[2:], 2):
        ended = [o for n in begun[:place] if (o := outcomes[n + 2]).ended_s is not None]
        over = sum((o.ended_s or 0.0) <= (outcomes[number].sent_s or 0.0) for o in ended)
        assert over >= place - 1


@pytest.mark.timeout(120)
@pytest.mark.parametrize("turns", [1, 2])
def test_a_closed_loop_whose_server_is_gone_ends_and_every_call_has_its_reason(turns: int) -> None:
    """A connection that could not be made gave its place back to nobody, and the run stood still to its limit."""
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # and does not listen
        outcomes = run(f"http://127.0.0.1:{nobody.getsockname()[1]}/v1", sessions(6, turns, concurrency=2))
    expected = {"refused": 6} | ({"waited_in_vain": 6} if turns > 1 else {})
    assert counts(outcomes) == expected


@pytest.mark.parametrize("cuts", [(), (1,), (5, 6, 40), tuple(range(1, len(BODY)))])
@pytest.mark.parametrize("body", [BODY, b'{"error": {"message": "no"}}', b"data: {", b"\n"])
def test_an_answer_says_the_same_whenever_it_is_read(body: bytes, cuts: tuple[int, ...]) -> None:
    edges = [0, *(c for c in cuts if c < len(body)), len(body)]
    chunks = [(n, body[a:b]) for n, (a, b) in enumerate(itertools.pairwise(edges))]
    reader = StreamReader()
    for known in range(len(chunks) + 1):
        reader.read(chunks[:known])
    assert reader.ended(chunks) == read_stream(chunks)
