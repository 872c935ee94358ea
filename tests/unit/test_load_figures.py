"""Counting rules, fairness, capacity, certificates, workloads and the mock's truth: all pure functions."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.calibration.load_client import erlang_capacity
from paceline.families.serving.core.load.arrivals import draw_arrivals
from paceline.families.serving.core.load.calls import Call, Workload, carried
from paceline.families.serving.core.load.findings.capacity import find_capacity, inflation, met_alone
from paceline.families.serving.core.load.findings.certificate import certify
from paceline.families.serving.core.load.findings.counting import may_claim, requests_needed, wilson
from paceline.families.serving.core.load.findings.fairness import jain, service_gap
from paceline.families.serving.core.load.log.entries import Entry, Log, ProcessFacts
from paceline.families.serving.core.load.log.outcomes import Outcome, outcomes_of
from paceline.families.serving.core.mock import Behaviour, Freeze, Gaps
from paceline.families.serving.core.planning.points import longest_context
from paceline.families.serving.core.workloads.drawn import draw_workload
from paceline.families.serving.spec import FAMILY
from paceline.stats.estimates import wilson as wilson_of_the_reports


def test_percentile_claims_need_the_requests_that_mlperf_asks_for() -> None:
    assert [requests_needed(m) for m in (0, 1, 2)] == [459, 662, 838]
    assert may_claim(459, 0)
    assert not may_claim(458, 0)
    assert not may_claim(661, 1)


@given(st.integers(0, 30), st.floats(0.5, 0.999))
@settings(max_examples=40, deadline=None)
def test_more_misses_need_more_requests(misses: int, share: float) -> None:
    assert requests_needed(misses + 1, share=share) > requests_needed(misses, share=share)


@given(st.integers(0, 50), st.integers(0, 50))
def test_wilsons_interval_is_the_one_of_the_reports(hits: int, misses: int) -> None:
    if hits + misses:
        assert wilson(hits, hits + misses) == pytest.approx(
            wilson_of_the_reports(hits, hits + misses), abs=1e-9
        )


def test_jains_index_is_one_for_equals_and_one_nth_for_one() -> None:
    assert jain([3.0, 3.0, 3.0]) == pytest.approx(1.0)
    assert jain([5.0, 0.0, 0.0, 0.0]) == pytest.approx(0.25)
    assert math.isnan(jain([]))


def call(number: int, tenant: str, due_s: float, first_s: float, tokens: int) -> Entry:
    """Return a call whose tokens come 0.1 s apart."""
    events = [
        (
            round((first_s + 0.1 * n) * 1e9),
            b'data: {"choices": [{"index": 0, "text": " x", "token_ids": [1]}]}\n\n',
        )
        for n in range(tokens)
    ]
    events.append((events[-1][0], b"data: [DONE]\n\n"))
    return Entry(
        number=number,
        tenant=tenant,
        due_ns=round(due_s * 1e9),
        asked_tokens=tokens,
        sent_ns=round(due_s * 1e9),
        status=200,
        chunks=events,
        ended_ns=events[-1][0],
        ending="complete",
    )


def read(*entries: Entry) -> tuple[Outcome, ...]:
    return outcomes_of(Log(header={}, entries=entries, processes=()))


def test_the_service_gap_is_what_one_tenant_got_while_both_waited() -> None:
    outcomes = read(call(0, "a", 0.0, 1.0, 3), call(1, "a", 0.0, 4.0, 1), call(2, "b", 0.0, 5.0, 1))
    # from 0 to 4 both wait: a gets a prompt of 10 and three tokens at 2 each; at 4 its second prompt and token
    assert service_gap(outcomes, {0: 10, 1: 10, 2: 10}) == pytest.approx(10 + 6 + 10 + 2)


def test_service_while_the_other_does_not_wait_is_no_gap() -> None:
    outcomes = read(call(0, "a", 0.0, 1.0, 5), call(1, "b", 2.0, 2.5, 1))
    assert service_gap(outcomes, {0: 10, 1: 10}) == 0.0


def exponential_queue(
    rate: float, num: int, seed: int, *, places: int, service_s: float, limit_s: float
) -> int:
    """Return how many of an M/M/k queue's requests wait at most a limit."""
    rng = random.Random(seed)
    free = [0.0] * places
    met = []
    for at in draw_arrivals("poisson", rate_per_s=rate, count=num + 200, seed=seed):
        place = min(range(places), key=free.__getitem__)
        begun = max(float(at), free[place])
        free[place] = begun + rng.expovariate(1 / service_s)
        met.append(begun - at <= limit_s)
    return met[200:]


@pytest.mark.parametrize("seed", [1, 2, 3, 4, 5])
def test_the_search_finds_the_capacity_of_a_queue_whose_capacity_is_known(seed: int) -> None:
    truth = erlang_capacity(4, 0.01, 0.02, 0.9)

    def probe(rate: float, num: int, attempt: int) -> list[bool]:
        return exponential_queue(rate, num, 1000 * seed + attempt, places=4, service_s=0.01, limit_s=0.02)

    found = find_capacity(probe, start_per_s=50, most_per_s=2000, requests=3000)
    assert found.rate_per_s == pytest.approx(truth, rel=0.05)
    assert found.low_per_s < found.high_per_s


def test_calls_that_miss_in_bursts_say_less_than_as_many_that_miss_alone() -> None:
    rng = random.Random(0)
    alone = [rng.random() < 0.9 for _ in range(2000)]
    bursts = [value for value in alone[:100] for _ in range(20)]
    assert inflation(alone) < 2
    assert 8 < inflation(bursts) < 60
    assert inflation([True] * 100) == 1.0


def test_a_server_that_carries_everything_has_no_upper_end() -> None:
    found = find_capacity(lambda rate, num, _: [True] * num, start_per_s=10, most_per_s=100)
    assert (found.low_per_s, found.high_per_s, found.rate_per_s) == (100, math.inf, 100)


def test_a_server_that_carries_nothing_is_told() -> None:
    with pytest.raises(ValueError, match="not carried either"):
        find_capacity(lambda rate, num, _: [False] * num, start_per_s=10, most_per_s=100)


def spans(starts: list[float], lasting_s: float) -> list[tuple[float, float]]:
    """Return when calls began and ended that take equally long."""
    return [(at, at + lasting_s) for at in starts]


def test_an_objective_that_calls_miss_which_have_the_server_to_themselves_is_out_of_reach() -> None:
    apart = spans([float(i) for i in range(40)], 0.5)
    assert met_alone(apart, [False] * 40, target=0.9) == (0, 40)
    assert met_alone(apart, [i % 2 == 0 for i in range(40)], target=0.9) == (20, 40)
    assert met_alone(apart, [True] * 40, target=0.9) is None
    assert met_alone(apart[:19], [False] * 19, target=0.9) is None


def test_calls_that_miss_beside_others_say_nothing_of_lower_rates() -> None:
    together = spans([float(i) for i in range(40)], 1.5)
    assert met_alone(together, [False] * 40, target=0.9) is None
    # every third one is alone, and meets the objective
    mixed = spans([3.0 * i + at for i in range(30) for at in (0.0, 1.0, 1.2)], 0.5)
    assert met_alone(mixed, [i % 3 == 0 for i in range(90)], target=0.9) is None
    assert met_alone(mixed, [False] * 90, target=0.9) == (0, 30)
    # one that never ends is beside all that come behind it
    assert (
        met_alone([(-1.0, math.inf), *spans([float(i) for i in range(40)], 0.5)], [False] * 41, target=0.9)
        is None
    )


def test_a_search_ends_where_a_probe_knows_that_no_lower_rate_is_carried() -> None:
    tried = []

    def probe(rate: float, num: int, _: int) -> list[bool]:
        tried.append(rate)
        if rate < 4:
            raise ValueError("no lower rate")
        return [False] * num

    with pytest.raises(ValueError, match="no lower rate"):
        find_capacity(probe, start_per_s=10, most_per_s=100)
    assert tried == [10, 5, 2.5]


def sent(lateness_s: float, *, cpu_s: float = 0.1, num: int = 400) -> Log:
    entries = []
    for number, at in enumerate(draw_arrivals("poisson", rate_per_s=100, count=num, seed=0)):
        entry = call(number, "", float(at), float(at) + 0.05, 2)
        entry.sent_ns = round((float(at) + lateness_s) * 1e9)
        entries.append(entry)
    facts = ProcessFacts(part=0, cpu_s=cpu_s, wall_s=4.0, lags_s=(0.0,))
    return Log(header={"concurrency": None, "cap": None}, entries=tuple(entries), processes=(facts,))


def test_a_client_that_sends_in_time_gets_its_certificate() -> None:
    log = sent(0.0001)
    found = certify(log, outcomes_of(log))
    assert found.valid, found.problems
    assert found.arrivals is not None
    assert found.arrivals.exponential_p > 0.01


@pytest.mark.parametrize(("log", "word"), [(sent(0.004), "late"), (sent(0.0, cpu_s=3.9), "bottleneck")])
def test_a_client_that_is_the_bottleneck_is_found_out(log: Log, word: str) -> None:
    found = certify(log, outcomes_of(log))
    assert not found.valid
    assert any(word in problem for problem in found.problems)


@pytest.mark.parametrize(
    ("places", "gone", "valid"), [(4, 0, True), (4, 20, True), (3, 0, False), (3, 20, False)]
)
def test_places_are_counted_until_a_server_is_gone(places: int, gone: int, valid: bool) -> None:
    """Of four places ``places`` are taken all the time; calls to a server that is gone end as they begin."""
    entries = [call(n, "", n // places * 0.21, n // places * 0.21 + 0.1, 2) for n in range(10 * places)]
    end_s = 10 * 0.21
    for number in range(len(entries), len(entries) + gone):
        at_ns = round((end_s + 0.1 * (number - len(entries))) * 1e9)
        refused = {"due_ns": at_ns, "sent_ns": at_ns, "ended_ns": at_ns, "chunks": [], "ending": "refused"}
        entries.append(replace(call(number, "", 0.0, 0.1, 2), **refused))
    facts = ProcessFacts(part=0, cpu_s=0.1, wall_s=4.0, lags_s=(0.0,))
    log = Log(header={"concurrency": 4, "cap": None}, entries=tuple(entries), processes=(facts,))
    assert certify(log, outcomes_of(log)).valid == valid


def test_calls_that_are_refused_at_once_are_no_fault_of_the_client() -> None:
    """Between whole answers a server refuses every second call, whose place is empty until the next one is sent."""
    entries = []
    for number in range(40):
        entry = call(number, "", number * 0.1, number * 0.1 + 0.08, 2)
        if number % 2:
            at_ns = round(number * 0.1 * 1e9)
            entry = replace(entry, due_ns=at_ns, sent_ns=at_ns, ended_ns=at_ns, chunks=[], ending="status")
        entries.append(entry)
    facts = ProcessFacts(part=0, cpu_s=0.1, wall_s=4.0, lags_s=(0.0,))
    log = Log(header={"concurrency": 1, "cap": None}, entries=tuple(entries), processes=(facts,))
    assert certify(log, outcomes_of(log)).valid
    whole = replace(log, entries=tuple(e for e in entries if e.ending == "complete"))
    assert not certify(whole, outcomes_of(whole)).valid  # half of the time nothing was under way


def test_a_client_that_sends_at_another_rate_is_found_out() -> None:
    log = sent(0.0)
    slower = [replace(e, sent_ns=round((e.sent_ns or 0) * 1.05)) for e in log.entries]
    found = certify(replace(log, entries=tuple(slower)), outcomes_of(replace(log, entries=tuple(slower))))
    assert any("instead of" in problem for problem in found.problems)


@pytest.mark.parametrize(("num", "valid"), [(5, True), (200, False)])
def test_a_rate_is_judged_only_as_far_as_calls_may_be_late(num: int, valid: bool) -> None:
    """Five calls in 40 ms whose first is 0.7 ms late are 1.8 % too fast, and as punctual as anything may be."""
    pace = 1.0 if valid else 1.0 / 1.0175
    entries = []
    for number in range(num):
        entry = call(number, "", number * 0.01, number * 0.01 + 0.005, 2)
        late_ns = 700_000 if number == 0 else 0
        entry.sent_ns = round(number * 0.01 * pace * 1e9) + late_ns
        entries.append(entry)
    facts = ProcessFacts(part=0, cpu_s=0.01, wall_s=2.0, lags_s=(0.0,))
    log = Log(header={"concurrency": None, "cap": None}, entries=tuple(entries), processes=(facts,))
    found = certify(log, outcomes_of(log))
    assert found.valid == valid, found.problems
    assert valid or any("instead of" in problem for problem in found.problems)


def test_a_closed_loop_with_empty_places_is_found_out() -> None:
    entries = tuple(call(n, "", n * 1.0, n + 0.05, 2) for n in range(50))
    log = Log(header={"concurrency": 4}, entries=entries, processes=())
    assert any("under way" in problem for problem in certify(log, outcomes_of(log)).problems)


@pytest.mark.parametrize(("late_s", "valid"), [(0.0005, True), (0.1, False)])
def test_in_a_closed_loop_of_sessions_turns_wait_for_no_place_and_places_may_have_no_call(
    late_s: float, valid: bool
) -> None:
    """A place is empty while its user thinks, which is not the client's fault; a turn that is late, is."""
    entries = []
    for number in range(50):
        entry = call(number, "", number * 1.0, number + 0.3, 2)
        entry.sent_ns = round((number + late_s) * 1e9)
        entries.append(entry)
    facts = ProcessFacts(part=0, cpu_s=0.1, wall_s=50.0, lags_s=(0.0005,) * 10)
    log = Log(header={"concurrency": 4, "following": 25}, entries=tuple(entries), processes=(facts,))
    found = certify(log, outcomes_of(log))
    assert found.valid == valid, found.problems
    assert valid or any("sent up to" in problem for problem in found.problems)


def workload(**changed: object) -> Workload:
    params = {p.name: p.default for p in FAMILY.parameters}
    return draw_workload({**params, "op": "serve", **changed}, 512, 7)  # type: ignore[dict-item]


@pytest.mark.parametrize("kind", ["independent", "sessions", "workflows", "shared-prefixes"])
@pytest.mark.parametrize("arrivals", ["poisson", "gamma", "closed", "at-once"])
def test_the_same_seed_gives_the_same_calls_and_processes_share_them(kind: str, arrivals: str) -> None:
    once = workload(workload=kind, arrivals=arrivals, requests=30, tenants=3, heavy_tenant_factor=4.0)
    assert once == workload(workload=kind, arrivals=arrivals, requests=30, tenants=3, heavy_tenant_factor=4.0)
    assert len(once.calls) == 30
    for parts in (1, 2, 3):
        shares = [once.share(part, parts) for part in range(parts)]
        assert sorted(c.number for share in shares for c in share) == list(range(30))
        for share in shares:
            held = {c.number for c in share}
            assert all(set(c.after) <= held for c in share)


def test_turns_of_a_session_wait_for_the_one_before_and_carry_it_on() -> None:
    calls = workload(workload="sessions", requests=8, turns=4).calls
    assert [c.after for c in calls] == [(), (0,), (1,), (2,), (), (4,), (5,), (6,)]
    assert all(c.carries == bool(c.after) for c in calls)
    assert carried((1, 2), (3,), (4,)) == (1, 2, 3, 4)
    assert carried("ask", " answer", "more") == "ask  answer more"


def test_branches_of_a_workflow_carry_on_from_one_call_and_the_next_waits_for_all_and_is_told_of_them() -> (
    None
):
    shape = {"workload": "workflows", "turns": 2, "branches": 2, "lengths": "fixed"}
    calls = workload(requests=10, prompt_tokens=8, output_tokens=4, **shape).calls
    one = [(), (0,), (0,), (0, 1, 2), (3,), (3,), (3, 4, 5)]
    assert [c.after for c in calls] == [*one, (), (7,), (7,)]
    assert [len(c.prompt) for c in calls[:4]] == [8, 8, 8, 2 * 4 + 8]
    assert {c.tenant for c in calls[:7]} == {calls[0].tenant}
    whole = [8]
    for call in calls[1:7]:
        whole.append(whole[call.after[0]] + 4 + len(call.prompt))
    given = {p.name: p.default for p in FAMILY.parameters} | {
        "op": "serve",
        "prompt_tokens": 8,
        "output_tokens": 4,
    }
    assert longest_context({**given, **shape}) == max(whole) + 4
    assert any("7 calls each" in problem for problem in FAMILY.check({**given, **shape, "requests": 6}))


def test_the_heavy_tenant_calls_as_much_more_as_was_asked() -> None:
    calls = workload(requests=4000, tenants=2, heavy_tenant_factor=3.0).calls
    assert sum(c.tenant == "tenant-0" for c in calls) / 4000 == pytest.approx(0.75, abs=0.03)


def test_calls_of_shared_prefixes_begin_alike() -> None:
    calls = workload(workload="shared-prefixes", requests=40, prefixes=2, prefix_tokens=32).calls
    assert len({c.prompt[:32] for c in calls}) == 2
    assert len({c.prompt for c in calls}) == 40


@pytest.mark.parametrize(
    "calls",
    [
        (Call(number=1, prompt="a", output_tokens=1, at_s=0.0),),
        (Call(number=0, prompt="a", output_tokens=1),),
        (Call(number=0, prompt="a", output_tokens=1, after=(0,)),),
        (Call(number=0, prompt="a", output_tokens=1, at_s=0.0, carries=True),),
        (
            Call(number=0, prompt="a", output_tokens=1, at_s=0.0),
            Call(number=1, prompt="a", output_tokens=1, at_s=0.0, after=(0,)),
        ),
    ],
)
def test_calls_that_cannot_hang_together_are_refused(calls: tuple[Call, ...]) -> None:
    with pytest.raises(ValueError, match="call"):
        Workload(calls=calls)


def test_a_call_that_joins_two_sessions_makes_them_one() -> None:
    base = {"prompt": "a", "output_tokens": 1}
    joined = Workload(
        calls=(
            Call(number=0, at_s=0.0, **base),  # type: ignore[arg-type]
            Call(number=1, at_s=0.0, **base),  # type: ignore[arg-type]
            Call(number=2, after=(0, 1), **base),  # type: ignore[arg-type]
        )
    )
    assert joined.roots == (0, 0, 0)


def test_the_mock_writes_nothing_while_it_is_frozen_and_goes_on_behind() -> None:
    behaviour = Behaviour(
        first=Gaps(mean_s=0.05), gap=Gaps(mean_s=0.01), freezes=(Freeze(at_s=0.055, for_s=1.0),)
    )
    instants = list(behaviour.tokens(0.0, 4, random.Random(0)))
    assert instants == pytest.approx([0.05, 1.055, 1.065, 1.075])
    assert Behaviour.from_json(behaviour.as_json()) == behaviour


@pytest.mark.parametrize("kind", ["constant", "exponential", "lognormal"])
def test_drawn_durations_have_the_asked_mean(kind: str) -> None:
    rng = random.Random(0)
    gaps = Gaps(mean_s=0.01, kind=kind)  # type: ignore[arg-type]
    assert sum(gaps.draw(rng) for _ in range(20000)) / 20000 == pytest.approx(0.01, rel=0.03)
