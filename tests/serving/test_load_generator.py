"""The load generator against a server whose truth is known, in real processes over real connections."""

from __future__ import annotations

import itertools
import random
import statistics
from pathlib import Path

import pytest
from figures import Figures
from openai_stub import self_signed

from paceline.calibration.load_client import frozen_truth
from paceline.families.serving.core.load.arrivals import draw_arrivals
from paceline.families.serving.core.load.calls import Call, Workload
from paceline.families.serving.core.load.findings.certificate import certify
from paceline.families.serving.core.load.log.entries import Log
from paceline.families.serving.core.load.log.outcomes import Outcome, counts, gaps_s, outcomes_of, percentile
from paceline.families.serving.core.load.processes import run_load
from paceline.families.serving.core.load.sending.asking import Asking
from paceline.families.serving.core.load.sending.client import Limits
from paceline.families.serving.core.mock import FAULTS, Behaviour, Freeze, Gaps, MockServer
from paceline.families.serving.core.workloads.drawn import draw_workload
from paceline.families.serving.spec import FAMILY

QUICK = Behaviour(first=Gaps(mean_s=0.02), gap=Gaps(mean_s=0.002))
HELD_UP_S = 0.05
"""What a machine whose cores stand still now and then may add to any call; it takes nothing away from one."""
PATIENCE = Limits(call_s=1.5, silence_s=0.5, run_s=20)


def open_loop(
    num: int, *, rate: float = 100, tokens: int = 4, kind: str = "poisson", cap: int | None = None
) -> Workload:
    instants = draw_arrivals(kind, rate_per_s=rate, count=num, seed=1)
    return Workload(
        calls=tuple(
            Call(number=n, prompt=(1, 2, 3), output_tokens=tokens, at_s=float(t))
            for n, t in enumerate(instants)
        ),
        cap=cap,
    )


def go(behaviour: Behaviour, workload: Workload, **options: object) -> tuple[Log, tuple[Outcome, ...]]:
    with MockServer(behaviour) as server:
        log = run_load(server.url, "mock", workload, **{"warm": 8, **options})  # type: ignore[arg-type]
    return log, outcomes_of(log)


@pytest.mark.measured
def test_times_are_those_of_the_server(figure: Figures) -> None:
    _, outcomes = go(Behaviour(), open_loop(40, rate=20, tokens=16))
    assert counts(outcomes) == {"complete": 40}
    first_s = percentile([o.ttft_s for o in outcomes], 0.5)
    figure("time to first token, p50", first_s, unit="s", least=0.046, most=0.054)
    figure("gap between tokens, mean", statistics.mean(gaps_s(outcomes)), unit="s", least=0.0098, most=0.0102)
    assert all(o.stream.counted_by == "token_ids" for o in outcomes)


@pytest.mark.measured
@pytest.mark.parametrize("told", [True, False])
def test_several_tokens_in_an_event_have_the_pace_of_one(told: bool, figure: Figures) -> None:
    behaviour = Behaviour(tokens_per_chunk=4, token_ids=told)
    _, outcomes = go(behaviour, open_loop(30, rate=20, tokens=16))
    paces = [o.pace_s for o in outcomes if o.pace_s is not None]
    assert len(paces) == 30
    figure("time per token, p50", statistics.median(paces), unit="s", least=0.0097, most=0.0103)
    figure(
        "gap between events, p50", statistics.median(gaps_s(outcomes)), unit="s", least=0.0388, most=0.0412
    )
    assert {o.stream.counted_by for o in outcomes} == {"token_ids" if told else "usage"}


@pytest.mark.measured
def test_a_role_that_comes_first_is_no_first_token(figure: Figures) -> None:
    _, outcomes = go(Behaviour(role_first=True), open_loop(20, rate=20, tokens=2))
    first_s = percentile([o.ttft_s for o in outcomes], 0.5)
    figure("time to first token, p50", first_s, unit="s", least=0.044, most=0.056)


@pytest.mark.measured
def test_a_frozen_server_is_as_slow_as_it_is_though_the_client_may_send_few_calls_at_once(
    figure: Figures,
) -> None:
    behaviour = Behaviour(
        first=Gaps(mean_s=0.02), gap=Gaps(mean_s=0.002), freezes=(Freeze(at_s=1.0, for_s=1.0),)
    )
    workload = open_loop(150, rate=50, kind="constant", cap=4)
    _, outcomes = go(behaviour, workload)
    truth = frozen_truth(behaviour, [c.at_s or 0.0 for c in workload.calls], 4, 4)
    assert counts(outcomes) == {"complete": 150}
    for share in (0.5, 0.9, 0.99):
        found, expected = percentile([o.ttft_s for o in outcomes], share), percentile(truth, share)
        assert expected is not None
        least_s, most_s = 0.95 * expected - 0.005, 1.1 * expected + HELD_UP_S
        figure(f"time to first token, quantile {share}", found, unit="s", least=least_s, most=most_s)
    figure("longest time to first token", max(o.ttft_s for o in outcomes), unit="s", least=0.9)


@pytest.mark.measured
def test_a_stall_stays_a_stall(figure: Figures) -> None:
    behaviour = Behaviour(first=Gaps(mean_s=0.02), stall_every=20, stall_s=0.1)
    _, outcomes = go(behaviour, open_loop(20, rate=20, tokens=41))
    gaps = gaps_s(outcomes)
    figure("gap between tokens, p50", percentile(gaps, 0.5), unit="s", least=0.0095, most=0.0105)
    figure("gap between tokens, p99", percentile(gaps, 0.99), unit="s", least=0.1045, most=0.1155)


@pytest.mark.measured
def test_a_client_that_is_too_slow_is_found_out() -> None:
    log, outcomes = go(QUICK, open_loop(300, rate=200, tokens=8), handicap_s=0.004)
    found = certify(log, outcomes)
    assert not found.valid
    assert found.facts()["problems"]


@pytest.mark.measured
def test_a_closed_loop_keeps_its_places_taken(figure: Figures) -> None:
    workload = Workload(
        calls=tuple(Call(number=n, prompt="hello", output_tokens=8) for n in range(200)), concurrency=8
    )
    log, outcomes = go(QUICK, workload)
    assert counts(outcomes) == {"complete": 200}
    found = certify(log, outcomes)
    figure("mean concurrency", found.mean_concurrency, unit="calls", least=7.5, most=8.0)
    together = sorted([(o.sent_s, 1) for o in outcomes] + [(o.ended_s, -1) for o in outcomes])
    level = peak = 0
    for _, step in together:
        level += step
        peak = max(peak, level)
    assert peak == 8


def test_two_processes_send_what_one_would() -> None:
    workload = open_loop(200, rate=200)
    _, one = go(QUICK, workload)
    log, two = go(QUICK, workload, processes=2)
    assert [o.due_s for o in one] == [o.due_s for o in two]
    assert len(log.processes) == 2
    assert counts(two) == {"complete": 200}


@pytest.mark.gate
def test_fields_that_a_server_refuses_are_left_out_and_no_secret_is_kept() -> None:
    asking = Asking(
        leave_out=("ignore_eos", "stream_options"),
        rename={"max_tokens": "max_completion_tokens"},
        headers={"api-key": "a secret"},
    )
    log, outcomes = go(QUICK, open_loop(10, tokens=5), asking=asking)
    assert counts(outcomes) == {"complete": 10}
    assert {o.prompt_tokens for o in outcomes} == {None}  # no usage came, for none was asked for
    assert log.header["request"] == {
        "left_out": ["ignore_eos", "stream_options"],
        "renamed": {"max_tokens": "max_completion_tokens"},
        "headers": ["api-key"],
    }


def test_a_run_of_which_every_call_failed_has_no_certificate() -> None:
    calls = tuple(
        Call(number=n, prompt="x", output_tokens=2, at_s=0.01 * n, tenant="fault:status_500")
        for n in range(5)
    )
    log, outcomes = go(QUICK, Workload(calls=calls))
    assert certify(log, outcomes).problems == (
        "no call of 5 has a whole answer: status 5; the first: 500: oops",
    )


@pytest.mark.gate
def test_a_session_goes_on_with_what_was_answered() -> None:
    calls = [Call(number=0, prompt=(7, 8), output_tokens=3, at_s=0.0)]
    calls += [
        Call(number=n, prompt=(9,), output_tokens=2, after=(n - 1,), pause_s=0.05, carries=True)
        for n in (1, 2)
    ]
    log, outcomes = go(QUICK, Workload(calls=tuple(calls)))
    assert counts(outcomes) == {"complete": 3}
    for before, after in itertools.pairwise(outcomes):
        assert after.due_s == pytest.approx((before.ended_s or 0) + 0.05, abs=1e-6)
    # ids 7 8, answered by 0 1 2, then 9; and so on: the mock counts the prompt's tokens
    assert [o.prompt_tokens for o in outcomes] == [2, 6, 9]
    assert log.entries[2].sent_bytes > log.entries[0].sent_bytes


def test_a_prompt_that_the_kernel_takes_in_parts_arrives_whole() -> None:
    prompt = "word " * 1_000_000
    _, outcomes = go(QUICK, Workload(calls=(Call(number=0, prompt=prompt, output_tokens=2, at_s=0.0),)))
    # the mock counts words
    assert [(o.kind, o.prompt_tokens) for o in outcomes] == [("complete", 1_000_000)]


def test_a_workflow_goes_on_when_all_of_its_branches_have_answered() -> None:
    params = {p.name: p.default for p in FAMILY.parameters} | {
        "op": "serve",
        "workload": "workflows",
        "branches": 3,
    }
    shape = {
        "requests": 9,
        "turns": 2,
        "prompt_tokens": 8,
        "output_tokens": 3,
        "lengths": "fixed",
        "think_s": 0.02,
    }
    drawn = draw_workload({**params, **shape}, 512, 1)
    _, outcomes = go(QUICK, drawn)
    assert counts(outcomes) == {"complete": 9}
    for call, outcome in zip(drawn.calls, outcomes, strict=True):
        ends = [outcomes[n].ended_s or 0.0 for n in call.after]
        assert not ends or (outcome.due_s or 0.0) == pytest.approx(max(ends) + call.pause_s, abs=1e-6)
        carried = (outcomes[call.after[0]].prompt_tokens or 0) + 3 if call.carries else 0
        assert outcome.prompt_tokens == carried + len(call.prompt)
    overlap = sorted(outcomes[1:4], key=lambda o: o.due_s or 0.0)
    assert (overlap[1].due_s or 0.0) < (overlap[0].ended_s or 0.0)


EXPECTED = {
    "status_429": "status",
    "status_500": "status",
    "malformed_event": "malformed",
    "malformed_http": "malformed",
    "schema": "malformed",
    "error_event": "error_event",
    "disconnect": "disconnected",
    "stall": "stalled",
    "content_type": "content_type",
    "endless": "timed_out",
    "huge_token": "too_long",
    "no_end": "unended",
    "truncated": "truncated",
}


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_everything_that_can_go_wrong_is_counted_with_its_reason_and_the_rest_goes_on(loop: str) -> None:
    kinds = [*EXPECTED, *["" for _ in range(12)]]
    random.Random(0).shuffle(kinds)
    calls = tuple(
        Call(number=n, prompt="x", output_tokens=6, at_s=0.02 * n, tenant=f"fault:{kind}" if kind else "")
        for n, kind in enumerate(kinds)
    )
    log, outcomes = go(QUICK, Workload(calls=calls), limits=PATIENCE, loop=loop)
    assert [p.loop for p in log.processes] == [loop]
    assert set(EXPECTED) | {"killed"} == set(FAULTS)
    for kind, outcome in zip(kinds, outcomes, strict=True):
        assert outcome.kind == (EXPECTED[kind] if kind else "complete"), (kind, outcome.detail)
        assert outcome.ok or outcome.detail


def test_a_server_that_dies_leaves_a_complete_log() -> None:
    calls = tuple(
        Call(number=n, prompt="x", output_tokens=6, at_s=0.05 * n, tenant="fault:killed" if n == 5 else "")
        for n in range(12)
    )
    _, outcomes = go(QUICK, Workload(calls=calls), limits=PATIENCE)
    kinds = [o.kind for o in outcomes]
    assert kinds[:4] == ["complete"] * 4
    assert set(kinds[6:]) == {"refused"}
    assert kinds[5] == "disconnected"


def test_nobody_at_the_address_is_told() -> None:
    log = run_load("http://127.0.0.1:9/v1", "none", open_loop(5), limits=PATIENCE)
    assert counts(outcomes_of(log)) == {"refused": 5}


@pytest.mark.measured
def test_a_run_ends_on_time_whatever_is_left(figure: Figures) -> None:
    log, outcomes = go(Behaviour(first=Gaps(mean_s=30.0)), open_loop(8, rate=4), limits=Limits(run_s=1.0))
    found = counts(outcomes)
    assert found["cancelled"] + found["not_sent"] == 8
    figure("time of a run of one second", log.processes[0].wall_s, unit="s", most=4)


def test_a_certificate_that_nobody_vouches_for_is_told(tmp_path: Path) -> None:
    with MockServer(QUICK, certificate=self_signed(tmp_path)) as server:
        log = run_load(server.url, "mock", open_loop(3), limits=PATIENCE)
    outcomes = outcomes_of(log)
    assert counts(outcomes) == {"tls": 3}
    assert "certificate" in (outcomes[0].detail or "").lower()
