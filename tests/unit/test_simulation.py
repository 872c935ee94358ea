"""Serving in virtual time: costs, laws that no log may break, wrong simulators, deployments, predictors and traces."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from mutant_files import module_of
from paceline.baselines.serving.apex_sim import Apex
from paceline.baselines.serving.batchllm import BatchLlm
from paceline.baselines.serving.cache_aware_router import CacheAwareRouter
from paceline.baselines.serving.chunked_prefill import ChunkedPrefill
from paceline.baselines.serving.d2lpm import DoubleDeficitLongestPrefixMatch
from paceline.baselines.serving.dlpm import DeficitLongestPrefixMatch
from paceline.baselines.serving.lpm import LongestPrefixMatch
from paceline.baselines.serving.lru_prefix_cache import LruPrefixCache
from paceline.baselines.serving.mean_batch import MeanBatch
from paceline.baselines.serving.orca import Orca
from paceline.baselines.serving.pd_disaggregated import Disaggregated
from paceline.baselines.serving.semi_pd import SemiDisaggregated
from paceline.baselines.serving.static_batching import StaticBatching
from paceline.baselines.serving.unified import Unified
from paceline.baselines.serving.vtc import VirtualTokenCounter

from paceline.base.errors import UserError
from paceline.families.serving.api.deploying import Deployment, Given, InParts, Load, OnePerDevice
from paceline.families.serving.api.predicting import Asked, Configuration, Counts
from paceline.families.serving.core.engine.core import Engine, RefusedStepError, Work
from paceline.families.serving.core.load.calls import Call
from paceline.families.serving.core.simulation.cluster import Cluster, Link
from paceline.families.serving.core.simulation.costs import NAMES, Costs, Measured, features, fit
from paceline.families.serving.core.simulation.executed import Executed, measure, replay_problem, simulate
from paceline.families.serving.core.simulation.figures import virtual_figures
from paceline.families.serving.core.simulation.laws import broken_laws, instance_copies
from paceline.families.serving.core.simulation.log import DoneStep, Log, Part, Token, log_of
from paceline.families.serving.core.simulation.profiling import undisturbed
from paceline.families.serving.core.simulation.sessions import at_load, due_times, told_in_full
from paceline.families.serving.core.workloads.traces import calls_of, read_trace
from paceline.families.serving.ops.predict.gate import wrong_counts
from paceline.families.serving.ops.serve.prefixes import most_hits
from paceline.families.serving.ops.simulate.given import capacity_per_s, num_weights

SECONDS = (7e-4, 1e-6, 3e-6, 5e-6, 4e-7, 1.8e-4, 4e-8, 2e-7, 4e-6)
COSTS = Costs(
    coefficients=dict(zip(NAMES, SECONDS, strict=True)),
    kv_bytes_per_token=1024,
    clock="none",
    num_steps=1,
    error=0.0,
    bias=0.0,
)
LINK = Link(bytes_per_s=1e8, delay_s=1e-4)
GIVEN = Given(
    devices=1, blocks_per_device=128, weight_blocks=10, block_size=16, max_batch=24, token_budget=128
)
MUTANTS = Path(__file__).parents[1] / "mutants" / "deployments"


def calls_at(rate_per_s: float, num: int = 60, seed: int = 1) -> list[Call]:
    rng = random.Random(seed)
    return [
        Call(
            number=n,
            prompt=tuple(rng.randrange(4, 500) for _ in range(rng.randint(20, 200))),
            output_tokens=rng.randint(1, 40),
            at_s=n / rate_per_s,
        )
        for n in range(num)
    ]


def play(deployment: Deployment, given: Given = GIVEN, rate: float = 90.0) -> tuple[Log, list[Call]]:
    calls = calls_at(rate)
    return Cluster(deployment, given, COSTS, LINK).play(calls), calls


def problems_of(log: Log, calls: Sequence[Call]) -> list[str]:
    return broken_laws(log, calls, COSTS, LINK, block_size=16)


@pytest.mark.parametrize("devices", [1, 2, 3])
@pytest.mark.parametrize("rate", [20.0, 400.0])
@pytest.mark.parametrize("make", [Unified, SemiDisaggregated, Disaggregated])
def test_a_deployment_keeps_all_laws(make: Callable[[], Any], rate: float, devices: int) -> None:
    log, calls = play(make(), replace(GIVEN, devices=devices), rate)
    assert problems_of(log, calls) == []
    assert len(log.tokens) == sum(c.output_tokens for c in calls)


def test_what_moves_is_the_closed_form_and_only_who_moves_has_two_copies_of_the_weights() -> None:
    log, calls = play(Disaggregated())
    moving = [c for c in calls if c.output_tokens > 1]
    assert sum(t.size_bytes for t in log.transfers) == 1024 * sum(len(c.prompt) for c in moving)
    assert instance_copies(log) == 2
    for make in (Unified, SemiDisaggregated):
        log, _ = play(make(), replace(GIVEN, devices=2))
        assert log.transfers == []
        assert instance_copies(log) == 1


@cache
def sound() -> tuple[Log, list[Call]]:
    """Play once what is tampered with."""
    return play(Disaggregated())


def test_the_log_that_is_tampered_with_breaks_no_law() -> None:
    assert problems_of(*tampered("nothing")) == []


def tampered(how: str) -> tuple[Log, list[Call]]:
    """Return a log as a simulator would leave it that is wrong in one way."""
    log, calls = copy.deepcopy(sound())
    long = max((s for s in log.steps if len(s.parts) > 2), key=lambda s: len(s.parts))
    match how:
        case "serves twice":
            log.tokens.append(log.tokens[-1])
        case "forgets a call":
            log.tokens = [t for t in log.tokens if t.call != 7]
        case "first token too early":
            first = next(t for t in log.tokens if t.call == 7)
            log.tokens[log.tokens.index(first)] = replace(first, at_s=first.at_s - 1e-3)
        case "skips part of a prompt":
            step = next(s for s in log.steps if any(p.count > 3 and p.call == 7 for p in s.parts))
            step.parts = [replace(p, begin=p.begin + 2) if p.call == 7 else p for p in step.parts]
        case "ignores who decodes beside":
            del long.parts[-1]
        case "costs less":
            long.spans = [(long.spans[0][0] / 2, long.spans[0][1]), *long.spans[1:]]
        case "computes before it is asked":
            step = next(s for s in log.steps if any(p.call == 7 for p in s.parts))
            calls[7] = replace(calls[7], at_s=step.begin_s + 1e-3)
        case "moves for nothing":
            log.transfers[3] = replace(log.transfers[3], sent_s=log.transfers[3].begin_s)
        case "counts fewer bytes":
            log.transfers[3] = replace(log.transfers[3], size_bytes=log.transfers[3].size_bytes // 2)
        case "does not move":
            log.transfers = [t for t in log.transfers if t.call != log.transfers[3].call]
        case "goes on before it has arrived":
            log.transfers[3] = replace(log.transfers[3], end_s=log.transfers[3].end_s + 1.0)
        case "holds more than there is":
            log.memories = [(device, 5) for device, _ in log.memories]
        case "gives more than a device":
            for step in log.steps:
                step.spans = [(seconds, 1.0) for seconds, _ in step.spans]
        case "drops what is computed anew":
            last = max((t for t in log.tokens if t.call == 7), key=lambda t: t.at_s)
            log.tokens[log.tokens.index(last)] = replace(last, preempted=last.preempted + 1)
    return log, calls


@pytest.mark.parametrize(
    "how",
    [
        "serves twice",
        "forgets a call",
        "first token too early",
        "skips part of a prompt",
        "ignores who decodes beside",
        "costs less",
        "computes before it is asked",
        "moves for nothing",
        "counts fewer bytes",
        "does not move",
        "goes on before it has arrived",
        "holds more than there is",
        "gives more than a device",
        "drops what is computed anew",
    ],
)
def test_a_log_that_breaks_a_law_is_refused(how: str) -> None:
    assert problems_of(*tampered(how))


def test_what_a_call_finds_somebody_with_its_beginning_had_computed_in_the_same_memory() -> None:
    calls = [
        Call(number=n, prompt=(*range(4, 68), n), output_tokens=1, at_s=at_s)
        for n, at_s in enumerate((0.0, 0.5))
    ]
    log = Cluster(OnePerDevice(LongestPrefixMatch), replace(GIVEN, devices=2), COSTS, LINK).play(calls)
    (step,) = [s for s in log.steps if s.parts[0].call == 1]
    assert step.parts[0].begin == 64
    assert problems_of(log, calls) == []
    told = "call 1 begins at token 64, and nobody had computed that beginning"
    other = [replace(calls[0], prompt=(9, *calls[0].prompt[1:])), calls[1]]
    assert problems_of(log, other) == [told]
    step.worker = 1 - step.worker
    assert told in problems_of(log, calls)


def talks(num: int = 40, turns: int = 3, tenants: int = 4, every_s: float = 0.004) -> tuple[Call, ...]:
    """Return sessions whose first turns have beginnings in common, of tenants of which the first has most."""
    rng = random.Random(3)
    beginnings = [tuple(rng.randrange(4, 500) for _ in range(64)) for _ in range(2 * tenants)]
    calls: list[Call] = []
    for session in range(num):
        place = rng.randrange(len(beginnings)) if session % 3 == 0 else rng.randrange(2)
        for turn in range(turns):
            own = tuple(rng.randrange(4, 500) for _ in range(rng.randint(5, 30)))
            calls.append(
                Call(
                    number=len(calls),
                    tenant=f"tenant-{place // 2}",
                    prompt=own if turn else beginnings[place] + own,
                    output_tokens=rng.randint(1, 12),
                    at_s=None if turn else session * every_s,
                    after=(len(calls) - 1,) if turn else (),
                    pause_s=0.01 if turn else 0.0,
                    carries=bool(turn),
                )
            )
    return told_in_full(calls)


CACHING = [
    Orca,
    ChunkedPrefill,
    StaticBatching,
    LruPrefixCache,
    BatchLlm,
    VirtualTokenCounter,
    LongestPrefixMatch,
    DeficitLongestPrefixMatch,
]


@pytest.mark.parametrize("devices", [1, 3])
@pytest.mark.parametrize(
    "make",
    [*(partial(OnePerDevice, s) for s in CACHING), DoubleDeficitLongestPrefixMatch, CacheAwareRouter],
    ids=lambda make: str(make.args[0].__name__ if isinstance(make, partial) else make.__name__),
)
def test_schedulers_and_routers_keep_all_laws_over_sessions(make: Callable[[], Any], devices: int) -> None:
    calls = talks()
    given = replace(GIVEN, devices=devices, blocks_per_device=40, max_batch=6)
    log = Cluster(make(), given, COSTS, LINK).play(calls)
    assert problems_of(log, calls) == []
    assert len(log.tokens) == sum(c.output_tokens for c in calls)
    figures, _ = virtual_figures(log, calls, {"slo_ttft": 1.0, "slo_tpot": 1.0})
    hits = sum(counted["prefix_hit_tokens"] for counted in log.counters)
    preempted = sum(counted["preemptions"] for counted in log.counters)
    if not preempted:
        assert figures["prefix_cache_hit_rate"] == pytest.approx(hits / sum(len(c.prompt) for c in calls))


def test_a_turn_comes_a_pause_after_the_one_before_and_begins_with_it() -> None:
    calls = talks(num=1, turns=3)
    assert [c.prompt[: len(b.prompt)] == b.prompt for b, c in pairwise(calls)] == [True, True]
    assert [len(c.prompt) > len(b.prompt) + b.output_tokens for b, c in pairwise(calls)] == [True, True]
    log = Cluster(OnePerDevice(LongestPrefixMatch), GIVEN, COSTS, LINK).play(calls)
    begins = {n: min(s.begin_s for s in log.steps if s.parts[0].call == n) for n in range(3)}
    ends = {n: max(t.at_s for t in log.tokens if t.call == n) for n in range(3)}
    assert [begins[n] - ends[n - 1] for n in (1, 2)] == pytest.approx([0.01, 0.01])
    assert due_times(calls, log) == pytest.approx({0: 0.0, 1: ends[0] + 0.01, 2: ends[1] + 0.01})
    early = [replace(c, pause_s=0.011) for c in calls]
    assert any("before" in problem for problem in problems_of(log, early))


def test_of_equal_rights_one_tenants_queue_may_not_be_served_without_bound() -> None:
    """Deficits bound the gap of two tenants who both wait; longest prefix match does not."""
    calls = talks(num=240, turns=1, every_s=1e-4)
    given = replace(GIVEN, blocks_per_device=40, max_batch=6)
    quantum, longest, answer = 128.0, max(len(c.prompt) for c in calls), max(c.output_tokens for c in calls)
    # Both get the same quanta, and each one's credit is between a quantum and what is admitted on it, twice.
    bound = 2 * (quantum + longest + 2.0 * given.max_batch * answer) + longest
    gaps = {}
    for name, make in (
        ("dlpm", partial(DeficitLongestPrefixMatch, quantum=quantum)),
        ("lpm", LongestPrefixMatch),
    ):
        log = Cluster(OnePerDevice(make), given, COSTS, LINK).play(calls)
        gaps[name] = virtual_figures(log, calls, {"slo_ttft": 1.0, "slo_tpot": 1.0})[0]["virtual_service_gap"]
    assert gaps["dlpm"] <= bound
    assert gaps["lpm"] > bound


def test_a_tenant_goes_where_its_beginnings_are_until_its_credit_there_is_used_up() -> None:
    router = DoubleDeficitLongestPrefixMatch(server_quantum=100.0)
    router.layout(replace(GIVEN, devices=2))
    near = Load(waiting=3, running=2, missing_tokens=300, free_blocks=5, cached_tokens=32, coming_tokens=48)
    far = Load(waiting=0, running=0, missing_tokens=0, free_blocks=90)
    # 52 of its 100 are charged at a time; then the other server is open, where all 100 are computed.
    assert [router.route("a", 100, [near, far]) for _ in range(4)] == [0, 0, 1, 0]
    assert router.route("b", 100, [far, near]) == 1
    assert [CacheAwareRouter().route("a", 100, [near, far]) for _ in range(4)] == [0] * 4
    busy = replace(near, waiting=90)
    assert CacheAwareRouter().route("a", 100, [busy, far]) == 1
    assert CacheAwareRouter().route("a", 400, [near, far]) == 1


def test_what_is_on_its_way_into_a_cache_counts_for_a_router() -> None:
    seen: list[list[tuple[int, int]]] = []

    class Watching(CacheAwareRouter):
        def route(self, tenant: str, prompt_tokens: int, loads: Sequence[Load]) -> int:
            seen.append([(load.cached_tokens, load.coming_tokens) for load in loads])
            return 0

    calls = [
        Call(number=n, prompt=tuple(range(4, 104)), output_tokens=4, at_s=at_s)
        for n, at_s in enumerate((0.0, 0.0, 5.0))
    ]
    Cluster(Watching(), replace(GIVEN, devices=2), COSTS, LINK).play(calls)
    assert seen == [[(0, 0), (0, 0)], [(0, 96), (0, 0)], [(96, 96), (0, 0)]]


def test_service_is_what_is_computed_for_the_first_time() -> None:
    """Two tenants wait from 0 to 3; one gets 8 tokens of a prompt and an answer's one, the other nothing until 3."""
    parts = [
        [Part(call=0, begin=0, count=8, ends=True)],
        [Part(call=1, begin=0, count=8, ends=True)],
        [Part(call=2, begin=0, count=8, ends=True)],
    ]
    steps = [
        DoneStep(worker=0, begin_s=b, end_s=b + 1.0, parts=own, seen=1)
        for b, own in zip((0.5, 2.0, 3.0), parts, strict=True)
    ]
    log = Log(steps=steps, tokens=[Token(call=n, at_s=s.end_s, preempted=0) for n, s in enumerate(steps)])
    calls = [
        Call(number=n, prompt=tuple(range(4, 12)), output_tokens=1, tenant=t, at_s=0.0)
        for n, t in enumerate("aab")
    ]
    figures, _ = virtual_figures(log, calls, {"slo_ttft": 9.0, "slo_tpot": 9.0})
    assert figures["virtual_service_gap"] == 10.0  # until a's second begins; at its end only b waits
    assert figures["virtual_tenant_e2e"] == pytest.approx(((1.5 + 3.0) / 2 + 4.0) / 2)
    assert figures["prefix_cache_hit_rate"] == 0.0


def test_a_log_survives_the_way_between_processes() -> None:
    from dataclasses import asdict

    log, _ = play(SemiDisaggregated())
    assert log_of(json.loads(json.dumps(asdict(log)))) == log


def mutant(name: str) -> Any:
    return module_of(MUTANTS / f"{name}.py").Mutant()


REFUSED = {
    "takes_two_devices": "more than there is",
    "has_more_memory": "there is room for 118",
    "routes_nowhere": "route names memory 1",
    "never_computes": "computes nothing though 60 requests wait",
    "forgets_answers": "computes nothing though",
}
WRONG = {
    "ignores_the_batch": "the engine did",
    "never_preempts": "the engine did",
    "predicts_no_number": "predicted makespan_s",
}


def test_every_mutant_has_an_expected_end() -> None:
    assert {p.stem for p in MUTANTS.glob("*.py")} == set(REFUSED) | set(WRONG)


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_a_deployment_that_takes_what_there_is_not_is_refused(name: str) -> None:
    with pytest.raises(RefusedStepError, match=REFUSED[name]):
        play(mutant(name))


TIGHT = Configuration(max_batch=16, token_budget=64, num_blocks=24, block_size=16)


@pytest.fixture(scope="module")
def executed() -> tuple[list[Call], Costs, list[Executed]]:
    model = {"layers": 1, "hidden": 32, "heads": 2, "kv_heads": 1, "vocab": 64, "max_context": 512, "seed": 5}
    calls = [replace(c, prompt=tuple(4 + t % 60 for t in c.prompt)[:90]) for c in calls_at(1.0, num=16)]
    wide = replace(TIGHT, num_blocks=200, token_budget=128)
    costs, found = measure(calls, [TIGHT, wide], model, device="cpu", seed=1, repeats=2)
    return calls, costs, found


def test_replayed_with_its_own_steps_the_simulator_is_the_engine(
    executed: tuple[list[Call], Costs, list[Executed]],
) -> None:
    calls, costs, found = executed
    assert [replay_problem(calls, e) for e in found] == [None, None]
    assert found[0].counters["preemptions"] > 0
    makespan_s, _ = simulate(calls, found[0].configuration, costs)
    assert makespan_s > 0


class _NoPreemption(Cluster):
    """Has memory without end."""

    def __init__(self, deployment: Any, given: Given, costs: Any, link: Link) -> None:
        super().__init__(deployment, replace(given, blocks_per_device=10**4), costs, link)


class _NoBatch(Cluster):
    """Serves one request after the other."""

    def __init__(self, deployment: Any, given: Given, costs: Any, link: Link) -> None:
        super().__init__(deployment, replace(given, max_batch=1), costs, link)


class _FreeSteps(Cluster):
    """Forgets what a step costs when nobody's prompt is in it."""

    def _begin(self, seat: Any) -> None:
        super()._begin(seat)
        if seat.work and all(p.count == 1 for p in seat.work):
            seat.left_s = 1e-6


@pytest.mark.parametrize("wrong", [_NoPreemption, _NoBatch, _FreeSteps])
def test_a_simulator_that_is_not_the_engine_is_refused(
    wrong: type[Cluster], executed: tuple[list[Call], Costs, list[Executed]]
) -> None:
    calls, _, found = executed
    assert replay_problem(calls, found[0], wrong) is not None


def told(predictor: Any, calls: Sequence[Call], costs: Any, executed: Executed) -> dict[str, Any]:
    trace = [Asked(prompt_tokens=len(c.prompt), output_tokens=c.output_tokens) for c in calls]
    found = predictor.predict(trace, executed.configuration, costs)
    counts = None if found.counts is None else vars_of(found.counts)
    return {"makespan_s": found.makespan_s, "ttft_s": found.ttft_s, "counts": counts}


def vars_of(counts: Counts) -> Mapping[str, int]:
    return {name: getattr(counts, name) for name in Counts.__dataclass_fields__}


def test_apex_goes_through_the_engines_own_steps(executed: tuple[list[Call], Costs, list[Executed]]) -> None:
    calls, costs, found = executed
    for one in found:
        said = told(Apex(), calls, costs, one)
        assert wrong_counts(one, said) is None
        makespan_s, ttft_s = simulate(calls, one.configuration, costs)
        assert said["makespan_s"] == pytest.approx(makespan_s)
        assert said["ttft_s"] == pytest.approx(sum(ttft_s) / len(ttft_s))
    assert wrong_counts(found[1], told(MeanBatch(), calls, costs, found[1])) is None


@pytest.mark.parametrize("name", sorted(WRONG))
def test_a_predictor_that_counts_what_did_not_happen_is_wrong(
    name: str, executed: tuple[list[Call], Costs, list[Executed]]
) -> None:
    calls, costs, found = executed
    problem = wrong_counts(found[0], told(mutant(name), calls, costs, found[0]))
    assert problem is not None
    assert WRONG[name] in problem


def drawn_steps(noise: float, num: int = 200) -> list[Measured]:
    rng = random.Random(3)
    steps = []
    for _ in range(num):
        pieces = [(rng.randint(10, 300), 1, True) for _ in range(rng.randint(0, 20))]
        pieces += [
            (rng.randint(0, 99), rng.randint(2, 90), rng.random() < 0.5) for _ in range(rng.randint(1, 3))
        ]
        seen = len(pieces) + rng.randint(0, 30)
        seconds = COSTS.seconds(pieces, seen) * (1 + noise * rng.random())
        steps.append(Measured(pieces=tuple(pieces), seconds=seconds, seen=seen))
    return steps


def test_costs_that_a_table_can_tell_are_found_again() -> None:
    exact = drawn_steps(0.0)
    found = fit(exact, kv_bytes_per_token=1, clock="none")
    assert found.error < 0.01
    disturbed = [replace(s, seconds=s.seconds * 20) if n % 23 == 0 else s for n, s in enumerate(exact)]
    assert fit(disturbed, kv_bytes_per_token=1, clock="none").coefficients["steps"] < 2 * SECONDS[0]
    assert Costs.of(json.loads(json.dumps(found.facts()))) == found
    with pytest.raises(ValueError, match="do not determine"):
        fit(exact[:20], kv_bytes_per_token=1, clock="none")
    with pytest.raises(ValueError, match="cannot cost nothing"):
        replace(COSTS, coefficients=dict.fromkeys(NAMES, 0.0))
    assert len(features(exact[0].pieces, 1)) == len(NAMES)


def test_least_times_are_of_the_same_steps_only() -> None:
    one, other = drawn_steps(0.5), drawn_steps(0.0)
    assert [s.seconds for s in undisturbed([one, other])] == [s.seconds for s in other]
    with pytest.raises(ValueError, match="other steps"):
        undisturbed([one, other[:-1]])


def test_a_load_is_a_share_of_what_whole_devices_serve() -> None:
    calls = calls_at(1.0)
    capacity = capacity_per_s(calls, GIVEN, COSTS)
    assert capacity_per_s(calls, replace(GIVEN, devices=2), COSTS) > 1.5 * capacity
    stretched = at_load(calls, 0.5 * capacity)
    assert max(c.at_s or 0.0 for c in stretched) == pytest.approx(len(calls) / (0.5 * capacity))
    assert num_weights is not None


def reuse(scheduler: Any, *, num_blocks: int) -> tuple[float, int]:
    """Serve shuffled requests of twelve beginnings; return what was reused of the most, and steps."""
    rng = random.Random(2)
    beginnings = [[rng.randrange(4, 400) for _ in range(64)] for _ in range(12)]
    prompts = [rng.choice(beginnings) + [rng.randrange(4, 400) for _ in range(9)] for _ in range(90)]

    def draw(work: Sequence[Work]) -> list[int]:
        return [5 for piece in work if piece.ends]

    engine = Engine(scheduler, draw, num_blocks=num_blocks, block_size=8, max_batch=8, token_budget=64)
    for prompt in prompts:
        engine.submit(prompt, 6)
    while engine.busy:
        engine.step(0.0)
        engine.check()
    assert engine.counters.finished == 90
    return engine.counters.prefix_hit_tokens / most_hits(prompts, 8), engine.counters.steps


def test_batchllm_reuses_all_that_can_be_reused_where_a_cache_alone_forgets() -> None:
    short = {name: reuse(s, num_blocks=64) for name, s in (("lru", LruPrefixCache()), ("tree", BatchLlm()))}
    assert short["tree"][0] == 1.0
    assert short["lru"][0] < 0.8
    assert short["lru"][1] > 1.1 * short["tree"][1]


def test_the_most_hits_are_all_blocks_but_the_first_of_each_kind() -> None:
    assert most_hits([[1, 2, 3, 4, 5], [1, 2, 3, 4, 6], [1, 2, 9, 9, 9]], 2) == 2 + 2 + 2
    assert most_hits([[1, 2, 3, 4], [1, 2, 3, 4, 5]], 2) == 4
    assert most_hits([[1, 2], [3, 4]], 2) == 0


MOONCAKE = '{"timestamp": 1000, "input_length": 700, "output_length": 3, "hash_ids": [4, 5]}'
AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens"
BURST = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type"


def test_traces_of_three_formats_are_read(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    path.write_text(MOONCAKE.replace("1000", "2500") + "\n" + MOONCAKE.replace("[4, 5]", "[4, 6]") + "\n")
    trace = read_trace(path, "mooncake")
    assert [(r.at_s, r.prompt_tokens, r.blocks) for r in trace.requests] == [
        (0, 700, (4, 6)),
        (1.5, 700, (4, 5)),
    ]
    assert len(trace.sha256) == 64
    one, other = calls_of(trace.requests, 500, seed=1, context=2000)
    assert one.prompt[:512] == other.prompt[:512]
    assert one.prompt[512:] != other.prompt[512:]
    half, _ = calls_of(trace.requests, 500, seed=1, context=2000, scale=0.5)
    assert (len(half.prompt), half.output_tokens) == (350, 2)
    with pytest.raises(UserError, match="703 tokens"):
        calls_of(trace.requests, 500, seed=1, context=600)
    path.write_text(f"{AZURE}\n2023-11-16 23:59:59.5000000,374,44\n2023-11-17 00:00:01.2500000,396,0\n")
    path.write_text(path.read_text() + "2023-11-17 00:00:02.7500000+00:00,10,2\n")
    trace = read_trace(path, "azure")
    assert [r.at_s for r in trace.requests] == pytest.approx([0.0, 3.25])
    assert trace.left_out == 1
    path.write_text(f"{BURST}\n5,ChatGPT,472,18,490,Conversation log\n45,GPT-4,1087,230,1317,API log\n")
    trace = read_trace(path, "burstgpt")
    assert [(r.at_s, r.output_tokens) for r in trace.requests] == [(0.0, 18), (40.0, 230)]


@pytest.mark.parametrize(
    ("form", "text", "where", "what"),
    [
        ("mooncake", MOONCAKE + "\nnothing", ":2", "not JSON"),
        ("mooncake", "[]", ":1", "not a JSON object"),
        ("mooncake", MOONCAKE.replace("[4, 5]", "[4]"), ":1", "1 hash_ids for 700"),
        ("mooncake", MOONCAKE.replace("700", "-1"), ":1", "input_length is -1"),
        ("mooncake", MOONCAKE.replace("3,", "true,"), ":1", "output_length is True"),
        ("mooncake", "", "", "no requests"),
        ("azure", "Time,Tokens\n", ":1", "the heading lacks TIMESTAMP"),
        ("azure", f"{AZURE}\nyesterday,1,2\n", ":2", "TIMESTAMP is 'yesterday'"),
        ("azure", f"{AZURE}\n2023-11-16 18:15:46.68,1\n", ":2", "another number of columns"),
        ("burstgpt", f"{BURST}\n5,m,1.5,2,3,x\n", ":2", "no whole number"),
        ("burstgpt", f"{BURST}\nnan,m,1,2,3,x\n", ":2", "no number from 0 on"),
        ("burstgpt", f"{BURST}\n5,m,0,2,3,x\n", "", "no request of the trace"),
    ],
)
def test_a_mistake_in_a_trace_is_told_with_its_line(
    tmp_path: Path, form: str, text: str, where: str, what: str
) -> None:
    path = tmp_path / "trace"
    path.write_text(text)
    with pytest.raises(UserError) as raised:
        read_trace(path, form)
    assert what in str(raised.value)
    assert f"{path}{where}" in str(raised.value)


def test_the_deployments_share_one_scheduler() -> None:
    assert InParts().shares_prefixes is False
