"""Decoding with drafts in virtual time: closed forms, what no log may break, wrong decoders, wrong event simulators."""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st
from mutant_files import module_of
from paceline.baselines.serving.autoregressive import Autoregressive
from paceline.baselines.serving.distributed_speculative_inference import (
    DistributedSpeculation,
    least_lookahead,
)
from paceline.baselines.serving.speculative import Speculative

from paceline.families.serving.api.speculating import CHECK, DRAFT, Decoder, Given
from paceline.families.serving.core.engine.core import RefusedStepError
from paceline.families.serving.ops.decode.chain import VOCAB, Chain
from paceline.families.serving.ops.decode.event_simulator import DecodingLog, EventSimulator, Played
from paceline.families.serving.ops.decode.figures import decoding_figures
from paceline.families.serving.ops.decode.gate import broken_laws, most_at_once

GIVEN = Given(
    num_tokens=40, servers=7, lookahead=5, target_s=0.03, drafter_s=0.003, growth=0.0, interruptible=True
)
MUTANTS = Path(__file__).parents[1] / "mutants" / "speculation"
MAKERS: Sequence[Callable[[], Decoder]] = (Autoregressive, Speculative, DistributedSpeculation)


def decoded(decoder: Decoder, given: Given, acceptance: float, seed: int = 1) -> DecodingLog:
    simulator = EventSimulator(given, Chain(seed, acceptance))
    decoder.decode(simulator)
    return simulator.log()


def time_of(decoder: Decoder, given: Given, acceptance: float, answers: int = 6) -> float:
    logs = [decoded(decoder, given, acceptance, seed) for seed in range(answers)]
    return decoding_figures(logs, given)["decode_time"]


def greedy(chain: Chain, num_tokens: int) -> list[int]:
    node, found = 0, []
    for _ in range(num_tokens):
        found.append(chain.target(node))
        node = chain.child(node, found[-1])
    return found


@settings(max_examples=60, deadline=None)
@drawn(
    make=st.sampled_from(MAKERS),
    acceptance=st.sampled_from([0.0, 0.3, 0.8, 1.0]),
    ratio=st.floats(0.01, 2.0),
    lookahead=st.integers(1, 12),
    servers=st.integers(1, 8),
    growth=st.sampled_from([0.0, 0.05]),
    num_tokens=st.integers(1, 40),
    interruptible=st.booleans(),
    seed=st.integers(0, 2**32),
)
def test_every_decoder_gives_the_greedy_answer_and_keeps_all_laws(
    make: Callable[[], Decoder], acceptance: float, ratio: float, seed: int, **of_the_point: Any
) -> None:
    given = replace(GIVEN, drafter_s=0.03 * ratio, **of_the_point)
    log = decoded(make(), given, acceptance, seed)
    assert broken_laws(log, given, Chain(seed, acceptance)) == []
    assert [token for token, _ in log.delivered] == greedy(Chain(seed, acceptance), given.num_tokens)


def test_the_drafter_agrees_as_often_as_it_should_and_a_wrong_token_leads_elsewhere() -> None:
    chain = Chain(5, 0.7)
    node, agreed = 0, 0
    for _ in range(20_000):
        agreed += chain.drafter(node) == chain.target(node)
        node = chain.child(node, chain.target(node))
    assert abs(agreed / 20_000 - 0.7) < 4 * math.sqrt(0.7 * 0.3 / 20_000)
    right, wrong = chain.child(0, chain.target(0)), chain.child(0, (chain.target(0) + 1) % VOCAB)
    assert chain.target(right) != chain.target(wrong)
    again = Chain(5, 0.7)
    assert greedy(again, 50) == greedy(chain, 50) != greedy(Chain(6, 0.7), 50)


@pytest.mark.parametrize("lookahead", [1, 3, 7])
def test_closed_forms_where_drafts_always_or_never_agree(lookahead: int) -> None:
    given = replace(GIVEN, lookahead=lookahead)
    tokens, target_s, drafter_s = given.num_tokens, given.target_s, given.drafter_s
    close = pytest.approx
    for acceptance in (0.0, 1.0):
        assert time_of(Autoregressive(), given, acceptance) == close(tokens * target_s)
    rounds = [min(lookahead, tokens - 1 - done) for done in range(tokens)]
    assert time_of(Speculative(), given, 0.0) == close(sum(k * drafter_s + target_s for k in rounds))
    whole, left = divmod(tokens, lookahead + 1)
    last = (left - 1) * drafter_s + target_s if left else 0.0
    assert time_of(Speculative(), given, 1.0) == close(whole * (lookahead * drafter_s + target_s) + last)
    assert time_of(DistributedSpeculation(), given, 1.0) == close((tokens - 1) * drafter_s + target_s)
    assert time_of(DistributedSpeculation(), given, 0.0) == close(tokens * target_s)


def test_tokens_of_a_check_are_what_acceptance_says() -> None:
    given = replace(GIVEN, num_tokens=400)
    logs = [decoded(Speculative(), given, 0.8, seed) for seed in range(20)]
    checks = sum(job.kind == CHECK for log in logs for job in log.jobs)
    expected = (1 - 0.8**6) / (1 - 0.8)  # Leviathan et al., equation 1
    assert 20 * 400 / checks == pytest.approx(expected, rel=0.04)


@pytest.mark.parametrize("ratio", [0.05, 0.3, 0.9, 1.5])
@pytest.mark.parametrize("acceptance", [0.0, 0.5, 0.9, 1.0])
def test_distributed_speculation_is_behind_neither_with_copies_enough(
    acceptance: float, ratio: float
) -> None:
    given = replace(GIVEN, drafter_s=0.03 * ratio)
    own = time_of(DistributedSpeculation(), given, acceptance)
    others = [Autoregressive(), *(Speculative(lookahead=k) for k in (1, 5, 10))]
    assert all(own <= 1.02 * time_of(other, given, acceptance) for other in others)


def test_distributed_speculation_with_one_copy_can_be_behind() -> None:
    given = replace(GIVEN, servers=1, drafter_s=0.03 * 0.065, num_tokens=100)
    assert time_of(DistributedSpeculation(), given, 0.63) > 1.05 * time_of(Speculative(), given, 0.63)


@pytest.mark.parametrize("servers", [1, 2, 7])
@pytest.mark.parametrize("ratio", [0.01, 0.065, 0.25, 0.33, 1.0, 2.0])
def test_the_lookahead_is_the_least_that_equation_1_allows(ratio: float, servers: int) -> None:
    given = replace(GIVEN, servers=servers, drafter_s=0.03 * ratio)
    allowed = [k for k in range(1, 200) if math.ceil(1 / (k * ratio) - 1e-9) <= servers]
    assert least_lookahead(given) == allowed[0]


def forged(how: str) -> tuple[DecodingLog, Given]:
    """Return a log as a simulator would leave it that is wrong in one way."""
    given = GIVEN
    log = copy.deepcopy(decoded(DistributedSpeculation(), given, 0.7))
    ended = [n for n, job in enumerate(log.jobs) if job.kind == CHECK and job.cancelled_s is None]
    job = log.jobs[ended[4]]
    match how:
        case "a wrong token":
            log.delivered[9] = ((log.delivered[9][0] + 1) % VOCAB, log.delivered[9][1])
        case "a token before it was told":
            log.delivered[9] = (log.delivered[9][0], log.delivered[8][1] - 0.05)
        case "a draft that no target told":
            log.jobs = [job for job in log.jobs if job.kind == DRAFT]
        case "too few tokens":
            del log.delivered[-1]
        case "a cheaper call":
            job.end_s -= 0.01
        case "a call before what it works on":
            job.begin_s, job.end_s = 0.0, given.target_s
        case "two calls on one device":
            given = replace(given, servers=1)
        case "two drafters":
            job = next(job for job in log.jobs if job.kind == DRAFT and job.begin == job.end == 0)
            log.jobs.append(replace(job, begin_s=job.begin_s + 0.001, end_s=job.end_s + 0.001))
        case "a path from the future":
            log.edges[2] = (9, log.edges[2][1])
        case "drafts that do not follow":
            job.begin, job.end = job.end, job.begin
        case "a draft of many tokens":
            job.kind = DRAFT
        case "cancelled, yet busy for less":
            given = replace(given, interruptible=False)
        case _:
            raise AssertionError(how)
    return log, given


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("a wrong token", "and the target says"),
        ("a token before it was told", "before the target had told it"),
        ("a draft that no target told", "nobody had told|before the target had told it"),
        ("too few tokens", "39 tokens were handed out, and 40"),
        ("a cheaper call", "is its cost"),
        ("a call before what it works on", "which nobody had told by then"),
        ("two calls on one device", "devices compute check calls at a time"),
        ("two drafters", "2 devices compute draft calls"),
        ("a path from the future", "which comes later"),
        ("drafts that do not follow", "is none"),
        ("a draft of many tokens", "is none"),
        ("cancelled, yet busy for less", "is its cost"),
    ],
)
def test_a_forged_log_is_refused(how: str, reason: str) -> None:
    log, given = forged(how)
    problems = broken_laws(log, given, Chain(1, 0.7))
    assert any(re.search(reason, said) for said in problems), problems


WRONG = {
    "accepts_all": "and the target says",
    "hands_out_drafts": "and the target says|before the target had told it",
    "stops_early": "39 tokens were handed out, and 40",
    "stops_the_clock": "which nobody had told by then",
}


def wrong_decoder(name: str) -> Decoder:
    made: Decoder = getattr(module_of(MUTANTS / f"{name}.py"), name.title().replace("_", ""))()
    return made


def test_every_wrong_decoder_has_an_expected_end() -> None:
    assert {path.stem for path in MUTANTS.glob("*.py")} == {*WRONG, "guesses"}


@pytest.mark.parametrize("name", sorted(WRONG))
def test_a_wrong_decoder_is_found_by_its_log(name: str) -> None:
    problems = broken_laws(decoded(wrong_decoder(name), GIVEN, 0.7), GIVEN, Chain(1, 0.7))
    assert any(re.search(WRONG[name], said) for said in problems), problems


def test_who_guesses_is_refused_at_once() -> None:
    with pytest.raises(RefusedStepError, match="nobody has told it token 0"):
        decoded(wrong_decoder("guesses"), GIVEN, 0.7)


def test_the_event_simulator_gives_nothing_that_is_not_there() -> None:
    simulator = EventSimulator(replace(GIVEN, servers=1), Chain(1, 0.5))
    with pytest.raises(RefusedStepError, match="nothing is computed"):
        simulator.wait()
    with pytest.raises(RefusedStepError, match="nobody has told it token 0"):
        simulator.draft([17])
    simulator = EventSimulator(replace(GIVEN, servers=1), Chain(1, 0.5))
    simulator.check(())
    simulator.draft(())
    with pytest.raises(RefusedStepError, match=r"see free_servers\(\)"):
        simulator.check(())
    with pytest.raises(RefusedStepError, match=r"see drafter_free\(\)"):
        simulator.draft(())


def test_a_call_that_cannot_be_interrupted_keeps_its_device() -> None:
    for interruptible in (True, False):
        simulator = EventSimulator(replace(GIVEN, servers=1, interruptible=interruptible), Chain(1, 0.5))
        job = simulator.check(())
        simulator.cancel(job)
        simulator.cancel(job)
        assert simulator.free_servers() == int(interruptible)
        if not interruptible:
            assert simulator.wait() is job
            assert job.told is None
            assert simulator.now_s == pytest.approx(GIVEN.target_s)
            assert simulator.free_servers() == 1


def test_work_and_devices_are_counted_from_the_log() -> None:
    jobs = [
        Played(kind=CHECK, begin=0, end=0, begin_s=at_s, end_s=at_s + 0.03) for at_s in (0.0, 0.01, 0.03, 0.2)
    ]
    assert most_at_once(jobs) == 2
    log = DecodingLog(jobs=jobs, delivered=[(1, 0.03), (2, 0.25)])
    figures = decoding_figures([log], replace(GIVEN, num_tokens=2))
    assert figures == {"decode_time": 0.25, "target_work": pytest.approx(2.0), "servers_used": 2}


@pytest.mark.parametrize("growth", [0.05, 0.2, 0.5])
def test_checks_that_end_out_of_order_deliver_nothing_that_was_not_checked(growth: float) -> None:
    given = replace(GIVEN, num_tokens=23, growth=growth)
    for seed in range(200):
        chain = Chain(seed, 0.8)
        log = decoded(DistributedSpeculation(lookahead=5), given, 0.8, seed)
        assert [token for token, _ in log.delivered] == greedy(chain, 23), seed
        assert broken_laws(log, given, Chain(seed, 0.8)) == []
