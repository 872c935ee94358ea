"""Codes; schemes against what the authors' simulation does; a judge that reads logs, by hand and by closed forms."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from paceline.baselines.training.gradient_coding import GradientCoding
from paceline.baselines.training.m_sgc import MultiplexedCoding
from paceline.baselines.training.sr_sgc import SelectiveRepetition

from paceline.families.training.api.coding import (
    Assign,
    Bursts,
    Deliver,
    End,
    Given,
    Master,
    Plan,
    Task,
    UnsupportedError,
    Wait,
    cyclic_code,
    decoding,
)
from paceline.families.training.core.apart import RefusedError, where_apart
from paceline.families.training.ops.coded_gradients.engine import Engine, Played, load_of
from paceline.families.training.ops.coded_gradients.judge import broken_laws, recovery_error, sample_weights
from paceline.families.training.ops.coded_gradients.parameters import PARAMETERS
from paceline.families.training.ops.coded_gradients.spec import OPERATION
from paceline.families.training.ops.coded_gradients.straggling import JITTER, Straggling
from paceline.families.training.ops.coded_gradients.work import Computed, Work, bounds_of

DEFAULTS = {p.name: p.default for p in PARAMETERS}
SMALL = {
    **DEFAULTS,
    "workers": 7,
    "jobs": 30,
    "model_dim": 4,
    "data_samples": 37,
    "slow_begin": 0.15,
    "slow_end": 0.4,
}
SCHEMES: Mapping[str, Callable[[], Any]] = {
    "uncoded": GradientCoding,
    "gradient-coding": lambda: GradientCoding(stragglers=2),
    "sr-sgc": lambda: SelectiveRepetition(burst=1, window=3, stragglers=3),
    "sr-sgc-two": lambda: SelectiveRepetition(burst=2, window=3, stragglers=4),
    "m-sgc": lambda: MultiplexedCoding(burst=1, window=2, stragglers=2),
    "m-sgc-wide": lambda: MultiplexedCoding(burst=2, window=4, stragglers=5),
    "m-sgc-long": lambda: MultiplexedCoding(burst=3, window=4, stragglers=3),
}


class Told:
    """Durations as told, (rounds, workers), whatever the load."""

    def __init__(self, durations_RW: Any) -> None:
        self.durations = np.asarray(durations_RW, dtype=float)

    def duration_s(self, worker: int, number: int, load: float) -> float:
        return float(self.durations[number, worker])


def play(
    master: Master, params: Mapping[str, Any] = SMALL, seed: int = 3, straggling: Any = None
) -> tuple[Played, Plan]:
    given = Given(workers=int(params["workers"]), jobs=int(params["jobs"]), seed=seed)
    plan = master.plan(given)
    drawn = straggling or Straggling(params, seed)
    return Engine(params, plan, master.run(given), drawn, Work(params, seed)).play(), plan


@pytest.mark.parametrize(("workers", "stragglers"), [(5, 0), (7, 2), (7, 6), (24, 6)])
def test_any_rows_but_the_stragglers_decode(workers: int, stragglers: int) -> None:
    code = cyclic_code(workers, stragglers, 5)
    assert ((code != 0).sum(axis=1) == stragglers + 1).all()
    draw = np.random.default_rng(2)
    for _ in range(20):
        rows = [int(r) for r in draw.permutation(workers)[: workers - stragglers]]
        assert np.abs(decoding(code, rows) @ code[rows] - 1).max() < 1e-8
        if len(rows) > 1:
            few = rows[:-1]
            assert np.abs(decoding(code, few) @ code[few] - 1).max() > 1e-3
    with pytest.raises(UnsupportedError, match="leave nobody"):
        cyclic_code(workers, workers, 5)


@pytest.mark.parametrize("name", sorted(SCHEMES))
@pytest.mark.parametrize("seed", [1, 2])
def test_every_sum_is_the_whole_gradient_and_every_law_is_kept(name: str, seed: int) -> None:
    played, plan = play(SCHEMES[name](), seed=seed)
    assert broken_laws(played, plan, SMALL, Straggling(SMALL, seed)) == []
    assert recovery_error(played, plan, Work(SMALL, seed)) < 1e-9
    assert len(played.delivered) == SMALL["jobs"]
    assert any(len(r.arrived) < 7 for r in played.rounds) == (name != "uncoded")


@pytest.mark.parametrize("name", sorted(SCHEMES))
def test_a_master_wants_the_same_again_on_what_it_was_told(name: str) -> None:
    played, _ = play(SCHEMES[name]())
    given = Given(workers=7, jobs=30, seed=3)
    assert where_apart(SCHEMES[name]().run(given), played.answers, played.wanted) is None
    other = Given(workers=7, jobs=30, seed=4)
    assert (where_apart(SCHEMES[name]().run(other), played.answers, played.wanted) is None) == (
        name == "uncoded"
    )


def test_gradients_do_not_vanish_where_models_have_arrived() -> None:
    params = {**SMALL, "jobs": 400}
    played, plan = play(GradientCoding(stragglers=2), params)
    assert recovery_error(played, plan, Work(params, 3)) < 1e-9


def largest_load(played: Played, plan: Plan) -> float:
    return max(load_of(tasks, plan.shares) for r in played.rounds for tasks in r.tasks)


@pytest.mark.parametrize(("burst", "window", "most"), [(1, 2, 2), (2, 4, 5), (3, 4, 3), (1, 5, 6)])
def test_loads_are_those_of_the_paper(burst: int, window: int, most: int) -> None:
    n, own = 7, window - 1
    multiplexed = play(MultiplexedCoding(burst=burst, window=window, stragglers=most))
    expected = (most + 1) * (own + burst) / (n * (burst + own * (most + 1)))
    assert largest_load(*multiplexed) == pytest.approx(expected)
    assert multiplexed[1].delay == window - 2 + burst
    if own % burst == 0:
        repeated = play(SelectiveRepetition(burst=burst, window=window, stragglers=most))
        coded = -(-burst * most // (own + burst))
        assert largest_load(*repeated) == pytest.approx((coded + 1) / n)
        assert repeated[1].delay == burst
    for s in (0, 3):
        assert largest_load(*play(GradientCoding(stragglers=s))) == pytest.approx((s + 1) / n)


def fits(away_RN: np.ndarray, away_N: np.ndarray, burst: int, window: int, most: int) -> bool:
    """Say whether a round fits the bursts, from a table of who was lost in earlier rounds."""
    now = len(away_RN)
    recent = away_RN[max(0, now + 1 - window) :].any(axis=0)
    earlier = away_RN[max(0, now + 1 - window) : max(0, now + 1 - burst)].any(axis=0)
    return bool((recent | away_N).sum() <= most and not (earlier & away_N).any())


def lengths_by_tables(
    durations_RN: np.ndarray, burst: int, window: int, most: int, patience: float
) -> list[float]:
    """Return rounds' lengths where whoever is late is lost if that fits the bursts: all that M-SGC's depend on."""
    away_RN, lengths = np.zeros((0, durations_RN.shape[1]), dtype=bool), []
    for row in durations_RN:
        limit = row.min() * (1 + patience)
        late = row > limit
        if not fits(away_RN, late, burst, window, most):
            late[:] = False
        lengths.append(limit if late.any() else row.max())
        away_RN = np.vstack([away_RN, late])
    return lengths


@pytest.mark.parametrize(("burst", "window", "most"), [(1, 2, 2), (2, 4, 5), (3, 4, 3)])
@pytest.mark.parametrize("seed", range(3))
def test_rounds_of_m_sgc_are_as_long_as_in_tables(burst: int, window: int, most: int, seed: int) -> None:
    rounds = 30 + window - 2 + burst
    draw = np.random.default_rng(seed)
    durations = 1 + 0.1 * draw.random((rounds, 7)) + 4 * (draw.random((rounds, 7)) < 0.12)
    played, _ = play(
        MultiplexedCoding(burst=burst, window=window, stragglers=most, patience=0.5),
        straggling=Told(durations),
    )
    found = [r.ended_s - r.begun_s for r in played.rounds]
    assert found == pytest.approx(lengths_by_tables(durations, burst, window, most, 0.5))
    assert len({len(r.arrived) for r in played.rounds}) > 1


def test_a_lost_chunk_is_repeated_and_codes_are_for_who_lost_none() -> None:
    durations = np.ones((33, 7))
    durations[4, 2] = 9.0
    played, plan = play(MultiplexedCoding(burst=1, window=3, stragglers=2), straggling=Told(durations))
    own = 7 * 2
    # Job 4: chunks of its first round, of its second, and in the third a code; worker 2 lost the first.
    kinds = {worker: played.rounds[6].tasks[worker][2] for worker in (1, 2)}
    assert all(task.job == 4 for task in kinds.values())
    assert len(kinds[1].chunks) == 3 and min(kinds[1].chunks) >= own
    assert kinds[2].chunks == (4,), "its own first chunk again"
    assert played.rounds[4].ended_s - played.rounds[4].begun_s == pytest.approx(1.3)
    assert plan.delay == 2 and played.delivered[4][0] == 7, "delivered when its third round has ended"


def test_who_did_not_send_is_asked_again_a_burst_later() -> None:
    durations = np.ones((32, 7))
    durations[4, [2, 5]] = 9.0
    # s = ⌈1·2/(1 + 1)⌉ = 1: one of the two may be missing, the other repeats.
    played, _ = play(SelectiveRepetition(burst=1, window=2, stragglers=2), straggling=Told(durations))
    assert [tasks[0].job for tasks in played.rounds[5].tasks] == [5, 5, 4, 5, 5, 5, 5]
    (delivery,) = [d for _, _, job, d in played.delivered if job == 4]
    assert (5, 2, 0) in delivery.results and (4, 5, 0) not in delivery.results
    quiet = [r for r in played.rounds if not any(r.tasks)]
    assert len(quiet) == 1 and quiet[0].ended_s == quiet[0].begun_s, "nothing is left after the last job"


def test_a_round_of_gradient_coding_ends_with_the_worker_that_completes_it() -> None:
    durations = np.tile([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0], (30, 1))
    for s, length in ((0, 7.0), (2, 5.0), (6, 1.0)):
        played, _ = play(GradientCoding(stragglers=s), straggling=Told(durations))
        assert played.rounds[-1].ended_s == pytest.approx(30 * length)


def test_bursts_are_bounded_in_number_and_in_length() -> None:
    bursts = Bursts(burst=2, window=4, most=2, lost=[frozenset({1}), frozenset({1}), frozenset()])
    assert bursts.fit({3}) and bursts.fit(set())
    assert not bursts.fit({3, 4}), "with worker 1 three in four rounds"
    assert not bursts.fit({1}), "three rounds ago is another burst"
    assert Bursts(burst=2, window=4, most=2, lost=[frozenset(), frozenset({1})]).fit({1}), (
        "still the same one"
    )


def test_states_follow_the_chain_whatever_is_asked_of_it() -> None:
    params = {**DEFAULTS, "workers": 50, "slow_begin": 0.05, "slow_end": 0.25, "slowdown": 10}
    drawn, seldom = Straggling(params, 7), Straggling(params, 7)
    usual = float(DEFAULTS["round_time"]) + float(DEFAULTS["whole_gradient_time"]) / 50
    times = np.array([[drawn.duration_s(w, r, 1 / 50) for w in range(50)] for r in range(600)])
    slow = times > 3 * usual
    assert slow.mean() == pytest.approx(0.05 / 0.3, abs=0.02)
    ends = (slow[:-1] & ~slow[1:]).sum() / slow[:-1].sum()
    assert ends == pytest.approx(0.25, abs=0.02)
    assert slow[0].mean() == pytest.approx(1 / 6, abs=0.15)
    assert np.log(times[~slow] / usual).std() == pytest.approx(JITTER, rel=0.05)
    assert seldom.duration_s(3, 599, 1 / 50) == times[599, 3]


def test_a_chunk_may_cut_a_sample_in_two() -> None:
    work = Work(SMALL, 1)
    shares = (0.31, 0.009, 0.4, 0.281)
    per_sample = work.gradients(0, np.ones(4))
    computed = Computed(per_sample, bounds_of(shares))
    for task in (Task(0, (0,), (1.0,)), Task(0, (1, 3), (2.0, -0.5)), Task(0, (0, 1, 2, 3), (1.0,) * 4)):
        expected = sample_weights(task, shares, 37) @ per_sample
        assert np.allclose(computed.result(task), expected, atol=1e-14)
    assert np.allclose(sample_weights(Task(0, (0, 1, 2, 3), (1.0,) * 4), shares, 37), 1.0)


def tampered(**changes: Any) -> tuple[Played, Plan]:
    """Return the log of gradient coding with one delivery changed."""
    played, plan = play(GradientCoding(stragglers=2))
    rounds, at_s, job, delivery = played.delivered[5]
    played.delivered[5] = rounds, at_s, job, replace(delivery, **changes)
    return played, plan


def test_a_judge_computes_every_sum_anew() -> None:
    honest = play(GradientCoding(stragglers=2))[0].delivered[5][3]
    work = Work(SMALL, 3)
    scaled = tuple(c * 1.00001 for c in honest.coefficients)
    assert recovery_error(*tampered(coefficients=scaled), work) == pytest.approx(1e-5, rel=0.01)
    assert (
        recovery_error(*tampered(results=honest.results[:-1], coefficients=honest.coefficients[:-1]), work)
        > 0.01
    )
    earlier = ((4, *honest.results[0][1:]), *honest.results[1:])
    assert recovery_error(*tampered(results=earlier), work) == float("inf"), "a result of another job"


def test_a_judge_reads_times_from_its_own_draws() -> None:
    drawn = Straggling(SMALL, 3)
    played, plan = play(GradientCoding(stragglers=2))
    assert broken_laws(played, plan, SMALL, drawn) == []
    worker, at_s = played.rounds[2].arrived[0]
    played.rounds[2].arrived[0] = worker, at_s - 0.1
    assert "arrived in round 2" in broken_laws(played, plan, SMALL, drawn)[0]
    played, plan = play(GradientCoding(stragglers=2))
    played.rounds[3].begun_s -= 0.5
    assert "round 3 begins" in broken_laws(played, plan, SMALL, drawn)[0]
    played, plan = play(GradientCoding(stragglers=2))
    played.rounds[-1].ended_s -= 0.5
    assert "before its last arrival" in broken_laws(played, plan, SMALL, drawn)[0]
    played, plan = play(GradientCoding(stragglers=2))
    del played.delivered[4]
    assert "job 4" in broken_laws(played, plan, SMALL, drawn)[0]
    played, plan = play(MultiplexedCoding())
    assert "later than its delay" in broken_laws(played, replace(plan, delay=0), SMALL, drawn)[0]


ALL = tuple((Task(0, (w,), (1.0,)),) for w in range(7))
IMPOSSIBLE: Mapping[str, tuple[list[Any], str]] = {
    "a job ahead": (
        [Assign(tuple((Task(1, (w,), (1.0,)),) for w in range(7)))],
        "does not begin before round 1",
    ),
    "no such job": ([Assign(tuple((Task(30, (w,), (1.0,)),) for w in range(7)))], "there is no job 30"),
    "fewer workers": ([Assign(ALL[:3])], "3 workers of 7"),
    "two rounds at once": ([Assign(ALL), Assign(ALL)], "cannot begin"),
    "the past": ([Assign(ALL), Wait(), Wait(0.0)], "would wait until 0 s"),
    "no round": ([Wait()], "no round has begun"),
    "nothing to end": ([End()], "none has begun"),
    "what is not there": ([Assign(ALL), Deliver(0, ((0, 1, 0),), (1.0,))], "which is not there"),
    "what was lost": ([Assign(ALL), End(), Deliver(0, ((0, 1, 0),), (1.0,))], "which is not there"),
    "nobody's job": ([Deliver(3, (), ())], "nobody has computed"),
    "a number": ([7], "not int"),
}


def iter_of(wants: list[Any]) -> Any:
    """Want one thing after another, whatever the answers; a list's own iterator takes none."""
    return (want for want in wants)


@pytest.mark.parametrize("name", sorted(IMPOSSIBLE))
def test_a_master_may_not_want_what_cannot_be(name: str) -> None:
    wants, reason = IMPOSSIBLE[name]

    class Impossible:
        def plan(self, given: Given) -> Plan:
            return Plan(shares=(1 / 7,) * 7, delay=0)

        def run(self, given: Given) -> Any:
            yield from iter_of(wants)

    with pytest.raises(RefusedError, match=reason):
        play(Impossible())


def test_a_job_waits_for_the_one_that_moved_its_model() -> None:
    class Hasty(GradientCoding):
        def run(self, given: Given) -> Any:
            yield Assign(ALL)
            yield End()
            yield Assign(tuple((Task(1, (w,), (1.0,)),) for w in range(7)))

    with pytest.raises(RefusedError, match="job 1 begins where job 0 leaves its model"):
        play(Hasty())


@pytest.mark.parametrize(("shares", "delay"), [((0.5, 0.4), 0), ((1.5, -0.5), 0), ((1.0,), -1)])
def test_a_plan_is_of_all_data_and_of_no_past(shares: tuple[float, ...], delay: int) -> None:
    class Odd(GradientCoding):
        def plan(self, given: Given) -> Plan:
            return Plan(shares=shares, delay=delay)

    with pytest.raises(RefusedError):
        play(Odd())


def test_points_that_nobody_recovers_from_are_refused() -> None:
    assert OPERATION.check(DEFAULTS) == []
    assert "at most 1" in OPERATION.check({**DEFAULTS, "slow_begin": 2})[0]
    assert "in the end all" in OPERATION.check({**DEFAULTS, "slow_end": 0})[0]
    for wrong in (
        lambda: MultiplexedCoding(burst=2, window=2),
        lambda: SelectiveRepetition(burst=2, window=4),
        lambda: play(MultiplexedCoding(stragglers=7)),
    ):
        with pytest.raises(UnsupportedError):
            wrong()
