"""What techniques of known objectives compute, by hand, by closed forms and by plain algorithms."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from paceline.baselines.training.dbw import DynamicBackupWorkers, expected_gain, growing_times
from paceline.baselines.training.diff2 import Diff2
from paceline.baselines.training.distributed_extragradient import DistributedExtragradient
from paceline.baselines.training.fedcompass import FedCompass, Group
from paceline.baselines.training.feddip import FedDip, largest_of, penalty_of, sparsity_of
from paceline.baselines.training.federated_averaging import FederatedAveraging
from paceline.baselines.training.fedfix import FedFix
from paceline.baselines.training.fzoos import Features, FZooS, kernel, slope_of
from paceline.baselines.training.gossip_descent import GossipDescent
from paceline.baselines.training.masha import Masha, spread_out
from paceline.baselines.training.modest import Modest
from paceline.baselines.training.sampled_averaging import SampledAveraging, order
from test_objective_judge import play, point

from paceline.base.families.family import is_missed
from paceline.families.training.api.objective import Message
from paceline.families.training.ops.objective import problems, told
from paceline.families.training.ops.objective.figures import curve_of, figures
from paceline.families.training.ops.objective.measure import distance_of
from paceline.families.training.ops.objective.reductions import iterates


def test_the_gain_of_a_step_is_that_of_a_quadratic() -> None:
    # by hand: η = 0.5, L = 1, ‖∇F‖² = 4, V = 8, k = 2: 0.5·4 − 0.125·4 − 0.125·8/2 = 1
    assert expected_gain(4.0, 8.0, 0.5, 1.0, np.array([2, 8])) == pytest.approx([1.0, 1.375])


def test_growing_times_are_the_isotonic_means() -> None:
    times = {1: deque([1.0]), 2: deque([4.0, 4.0]), 3: deque([1.0]), 4: deque([5.0])}
    # 4, 4 and 1 are pooled to 3; what was not seen goes on by the mean distance, (5 − 1)/3
    assert growing_times(times, 5) == pytest.approx([1.0, 3.0, 3.0, 5.0, 5.0 + 4.0 / 3.0])


def test_dbw_waits_for_few_when_noise_is_small() -> None:
    params = point(problem="logistic", heterogeneity=0.0)
    problem = problems.draw(params, 4, 1)
    given = told.given_of(problem, params, 1)[0]
    technique = DynamicBackupWorkers()
    technique.times = {k: deque([float(k)]) for k in (1, 2, 3, 4)}
    technique.variances.append(1e-6)
    technique.norms.append(1.0)
    assert technique.choose(given, 1) == 1
    technique.variances.append(1e6)
    assert technique.choose(given, 2) == 4, "no k has a gain, and all lose least"
    technique.variances.clear()
    technique.variances.append(1e-6)
    technique.norms.append(1.0)
    technique.last, technique.losses = 1, deque([1.0] * 5 + [2.0] * 5, maxlen=10)
    assert technique.choose(given, 3) == 2, "losses grew: one more than before"


def test_kept_places_are_the_same_on_all_nodes_and_unbiased() -> None:
    params = point(problem="bilinear-game", dim=10)
    first, second, *_ = told.given_of(problems.draw(params, 4, 1), params, 1)
    assert (spread_out(first, 5, 2, 3) == spread_out(second, 5, 2, 3)).all()
    assert (spread_out(first, 5, 2, 3) != spread_out(first, 6, 2, 3)).any()
    x, mean = np.arange(10.0), np.zeros(10)
    for step in range(4000):
        chosen = spread_out(first, step, 1, 3)
        mean[chosen] += x[chosen] * 10 / 3 / 4000
    assert mean == pytest.approx(x, abs=0.6)


@pytest.mark.parametrize("number", [0, 1])
def test_samples_are_drawn_alike_everywhere_and_evenly(number: int) -> None:
    assert order(number, [3, 1, 2, 0]) == order(number, range(4))
    firsts = [order(k, range(8))[0] for k in range(number, 800 + number)]
    assert np.bincount(firsts, minlength=8).min() > 60


def test_sparsity_and_penalty_follow_their_schedules() -> None:
    assert [sparsity_of(n, 10, 0.5, 0.9) for n in (0, 5, 10, 99)] == pytest.approx([0.5, 0.85, 0.9, 0.9])
    assert [penalty_of(n, 40, 0.001) for n in (0, 1, 2, 39, 99)] == pytest.approx(
        [0.0, 0.0, 5e-4, 5e-4 + 18 / 19 * 5e-4, 5e-4 + 18 / 19 * 5e-4]
    )
    assert largest_of(np.array([0.1, -3.0, 2.0, 0.0]), 0.5).tolist() == [False, True, True, False]


def test_a_surrogates_gradient_is_the_derivative_of_its_mean() -> None:
    rng = np.random.default_rng(0)
    points, weights, at, direction = (
        rng.standard_normal((6, 3)),
        rng.standard_normal(6),
        *rng.standard_normal((2, 3)),
    )

    def mean(x: Any) -> float:
        return float(kernel(x[None, :], points, 2.0)[0] @ weights)

    step = 1e-6 * direction
    assert slope_of(at, points, weights, 2.0) @ direction == pytest.approx(
        (mean(at + step) - mean(at - step)) / 2e-6, rel=1e-5
    )


def test_random_features_give_the_kernel() -> None:
    rng = np.random.default_rng(0)
    points = rng.standard_normal((5, 3))
    features = Features(7, 3, 40_000, 2.0)
    phi = features.at(points)
    assert phi @ phi.T == pytest.approx(kernel(points, points, 2.0), abs=0.03)
    weights, at, direction = rng.standard_normal(40_000), *rng.standard_normal((2, 3))
    step = 1e-6 * direction
    slope = ((features.at((at + step)[None, :]) - features.at((at - step)[None, :])) @ weights)[0] / 2e-6
    assert features.slope(at, weights) @ direction == pytest.approx(slope, rel=1e-4)


REDUCED: dict[str, tuple[Any, dict[str, Any], str, int]] = {
    "fedfix": (lambda: FedFix(local_steps=3, single=False, every=4.0), {}, "federated-averaging", 3),
    "fedcompass": (lambda: FedCompass(True, least=3, most=3, alpha=1.0, single=False), {}, "federated-averaging", 3),
    "feddip": (
        lambda: FedDip(local_steps=3, first=0.0, last=0.0, penalty=0.0, single=False), {}, "federated-averaging", 3,
    ),
    "masha": (lambda: Masha(1.0, keep=1.0, rate=0.5, single=False), {"problem": "bilinear-game"}, "extragradient", 1),
    "diff2": (
        lambda: Diff2(True, rounds=20, clip=1e6, clip_difference=1e6, single=False),
        {"problem": "nonconvex", "privacy_epsilon": 1e9}, "gradient-descent", 1,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(REDUCED))
def test_reductions_are_equal_iterate_by_iterate(name: str) -> None:
    make, changed, plain, steps = REDUCED[name]
    played, params, _ = play(make, **changed)
    problem = problems.draw(params, 4, 3)
    expected = iterates(plain, problem, 0.5 / problem.smoothness, steps, "star", 8)
    found = [model for *_, model in played.reports[:8]]
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


def final(make: Any, **changed: Any) -> float:
    played, params, _ = play(make, **changed)
    distance = distance_of(problems.draw(params, int(params["nodes"]), 3))
    return float(np.median([distance(model) for *_, model in played.reports[-8:]]))


def test_fedfix_finds_the_optimum_that_equal_weights_miss() -> None:
    changed = {"pace": "spread", "horizon": 1500.0, "heterogeneity": 1.0}
    right, wrong = (
        final(lambda u=u: FedFix(local_steps=2, every=5.0, unbiased=u), **changed) for u in (True, False)
    )
    assert right < 0.5 * wrong


def test_fedcompass_gives_slow_clients_fewer_steps() -> None:
    technique = FedCompass(least=4, most=20)
    technique.step_s, technique.version = {1: 1.0, 2: 4.0}, 0
    technique.seen, technique.begun_s = {}, {}
    technique._assign(1, 0.0)
    technique._assign(2, 0.0)
    # the first opens a group with 20 steps of 1 s; the second fits 5 steps of 4 s into it
    assert technique.steps == {1: 20, 2: 5}
    assert [g.clients for g in technique.groups] == [[1, 2]]


def test_fedcompass_waits_for_nobody_at_first() -> None:
    played, *_ = play(lambda: FedCompass(least=2, most=10), pace="spread", spread=10.0, horizon=400.0)
    begun: dict[int, list[float]] = {}
    for node, _, begin, _ in played.computed:
        begun.setdefault(node, []).append(begin)
    # the fastest has ten steps, and goes on at once: the slowest client's first ten take 100 s
    assert max(begun.values(), key=len)[10] < 15.0
    assert played.reports[0][1] < 15.0


def test_a_group_takes_its_own_and_whoever_was_late() -> None:
    params = point(dim=3)
    given = told.given_of(problems.draw(params, 3, 1), params, 1)[0]
    technique = FedCompass(alpha=1.0, ageing=1.0)
    technique.model, technique.version, technique.behind = np.zeros(3), 5, {1: (np.ones(3), 4)}
    technique.step_s, technique.begun_s, technique.seen = dict.fromkeys((1, 2, 3), 1.0), {}, {}
    first = Group(10.0, 15.0, [], {2: (np.ones(3), 5)})
    waiting = Group(20.0, 30.0, [1], {3: (np.full(3, 100.0), 5)})
    technique.groups = [first, waiting]
    list(technique._aggregate(given, first, 10.0))
    # a third of the one that came in time, and a sixth of the one that is a version old; not the other group's
    assert technique.model == pytest.approx(np.full(3, 1 / 3 + 1 / 6))
    assert (technique.behind, technique.version) == ({}, 6)
    assert waiting.arrived.keys() == {3}


def test_displacements_that_are_old_count_for_less() -> None:
    make = {
        a: lambda a=a: FederatedAveraging(asynchronous=True, local_steps=1, ageing=a, single=False)
        for a in (0.0, 1.0)
    }
    plain, aged = (play(make[a], pace="spread", spread=5.0)[0].reports for a in make)
    moved = [np.linalg.norm(r[3][-1] - r[2][-1]) / np.linalg.norm(r[2][-1] - r[1][-1]) for r in (plain, aged)]
    assert moved[0] != pytest.approx(moved[1])
    # nothing was added between the beginning of the first displacement and its arrival
    assert aged[0][-1] == pytest.approx(plain[0][-1])


def test_one_peer_a_round_mixes_all_nodes_in_as_many_rounds_as_their_number_has_bits() -> None:
    changed = {
        "problem": "quadratics",
        "nodes": 8,
        "graph": "complete",
        "pace": "alike",
        "heterogeneity": 1.0,
    }
    played, *_ = play(lambda: GossipDescent(rate=0.0, local_steps=1, one_peer=True, single=False), **changed)
    assert not np.any(played.reports[-1][-1]), "at rest nothing moves"
    params = point(nodes=8, graph="complete")
    one, *_ = told.given_of(problems.draw(params, 8, 1), params, 1)
    nodes, weights = range(8), np.eye(8)
    for number in range(3):
        hops = np.zeros((8, 8))
        for me in nodes:
            given = replace(one, me=me, neighbours=tuple(n for n in nodes if n != me))
            (ahead,), (behind,) = GossipDescent(one_peer=True)._partners(given, number)
            assert (behind - me) % 8 == (me - ahead) % 8
            hops[me, me] = hops[me, behind] = 0.5
        weights = hops @ weights
    assert weights == pytest.approx(np.full((8, 8), 1 / 8))


def test_feddip_learns_by_the_map_that_it_was_sent() -> None:
    params = point(dim=8)
    given = told.given_of(problems.draw(params, 4, 1), params, 1)[1]
    technique = FedDip(local_steps=2, first=0.5, last=0.5, penalty=0.0, rate=1.0)
    kept, own = np.arange(8) < 4, np.array([1.0, -2.0, 3.0, -4.0, 0, 0, 0, 0])
    run = technique._learn(given)
    next(run)
    at = [run.send(Message(sender=0, parts=technique._packed(own, kept), at_s=0.0)).at]
    at.append(run.send(np.full(8, -10.0) * given.smoothness).at)
    # the second gradient is asked for at the weights that the map keeps, though the others have grown
    assert at[0] == pytest.approx(own)
    assert at[1] == pytest.approx(np.where(kept, own + 10.0, 0.0))
    sent = run.send(np.zeros(8))
    weights, left = technique._unpacked(given, Message(sender=1, parts=sent.parts, at_s=0.0))
    assert left.sum() == 4
    assert weights[4] == pytest.approx(10.0), "error feedback: what the map left out has come back"


def test_a_correction_that_fades_leaves_some_of_what_it_corrects() -> None:
    changed = {"problem": "quadratics", "dim": 4, "condition": 4.0, "heterogeneity": 0.5, "horizon": 80.0}
    whole, fading, none = (
        final(lambda o=o: FZooS(**o), **changed) for o in ({"fading": False}, {}, {"correct": False})
    )
    assert whole < fading < none


def test_modest_goes_on_when_nodes_are_gone() -> None:
    changed = {"problem": "classes", "nodes": 8, "graph": "complete", "horizon": 400.0, "leaving_share": 0.5}
    played, params, _ = play(lambda: Modest(sample=3, ping=6.0, patience=10.0), **changed)
    late = [at_s for _, at_s, *_ in played.reports if at_s > 300.0]
    assert len(late) > 3, "reports go on long after half of the nodes have stopped"
    gone = set(told.leaving(params, 7))
    assert len(gone) == 4
    assert not gone & {node for node, at_s, *_ in played.reports if at_s > 200.0}


@pytest.mark.parametrize("make", [Modest, SampledAveraging])
def test_averages_of_samples_are_those_of_who_comes_first_in_the_rounds_order(make: Any) -> None:
    changed = {"problem": "quadratics", "nodes": 5, "graph": "complete", "horizon": 60.0}
    options = {"local_steps": 3, "single": False}
    played, params, _ = play(lambda: make(sample=5, **options), **changed)
    problem = problems.draw(params, 5, 3)
    # whoever aggregates, a sample of all is plain federated averaging; MoDeST reports where all begin, too
    first = int(make is Modest)
    expected = iterates("federated-averaging", problem, 0.5 / problem.smoothness, 3, "star", 8)
    np.testing.assert_allclose(
        [m for *_, m in played.reports[first : first + 8]], expected, rtol=1e-9, atol=1e-12
    )
    assert ({node for node, *_ in played.reports} == {0}) is (make is SampledAveraging)
    played, *_ = play(lambda: make(sample=3, **options), **changed)
    moved = []
    for node in order(0, range(5))[:3]:
        own = np.zeros(problem.dim)
        for _ in range(3):
            own = own - 0.5 / problem.smoothness * problem.gradient(node, own)
        moved.append(own)
    np.testing.assert_allclose(played.reports[first][-1], np.mean(moved, axis=0), rtol=1e-9, atol=1e-12)


def test_modest_and_a_server_that_samples_alike_find_the_same_models() -> None:
    changed = {
        "problem": "classes",
        "nodes": 8,
        "graph": "complete",
        "horizon": 200.0,
        "pace": "spread",
        "spread": 2.0,
    }
    modest, served = (play(lambda m=m: m(sample=4), **changed)[0].reports for m in (Modest, SampledAveraging))
    assert min(len(modest), len(served)) > 8
    for (_, late_s, *_, one), (_, at_s, *_, other) in zip(modest[1:], served, strict=False):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
        # it asks two nodes in turn where the server asks nobody: four hops of a millisecond a round, and speeds that
        # are drawn in another order
        assert late_s == pytest.approx(at_s, rel=0.1)


def test_modest_that_waits_for_every_answer_stops_with_the_first_that_is_gone() -> None:
    changed = {"problem": "classes", "nodes": 8, "graph": "complete", "horizon": 400.0, "leaving_share": 0.5}
    played, *_ = play(lambda: Modest(sample=6, ping=1e6, patience=1e6), **changed)
    assert 100.0 < max(at_s for _, at_s, *_ in played.reports) < 250.0


def test_others_wait_for_lost_neighbours_once() -> None:
    changed = {"problem": "classes", "nodes": 6, "graph": "ring", "horizon": 400.0, "leaving_share": 0.4}
    played, *_ = play(lambda: GossipDescent(local_steps=2, patience=30.0), **changed)
    assert max(at_s for _, at_s, *_ in played.reports) > 380.0


def test_extragradient_solves_a_game_that_averaging_of_steps_circles_around() -> None:
    assert final(DistributedExtragradient, problem="bilinear-game", horizon=400.0) < 1e-5
    assert final(FederatedAveraging, horizon=400.0) < 1.0


def test_who_never_comes_near_enough_is_said_to_have_missed_the_target() -> None:
    played, params, _ = play(FederatedAveraging, horizon=60.0)
    problem = problems.draw(params, 4, 3)
    curve = curve_of(played, distance_of(problem), all_report=False)
    for target, missed in ((0.9, False), (1e-12, True)):
        found, absent = figures(played, curve, problem, params | {"target": target})
        assert ("bits_to_target" in found) is not missed
        assert is_missed(absent.get("bits_to_target", "")) is missed
