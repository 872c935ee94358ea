"""Runs that lose peers, judged from messages alone: an honest story passes, and every lie in it is named."""

from __future__ import annotations

import random
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
import torch
from training_task import make_model

from paceline.families.training.api.model import loss_and_gradients
from paceline.families.training.core.planning.parameters import NONE
from paceline.families.training.ops.churn.judge import CheckedRun, Rules, of_kind
from paceline.families.training.ops.churn.parameters import COMPUTING, FAULT, SENDING, problems
from paceline.families.training.ops.churn.part import Sketch, kill_in_layer
from paceline.families.training.ops.churn.script import Script, draw
from paceline.worker.ranks.session import CaseError

STEPS, SYNC, PEERS, NEWCOMER = 80, 10, 3, 3
RATE, MOMENTUM = 0.7, 0.6
STEP_NS = 10_000_000
"""Of a local step; an exchange takes half of one."""
LATE_NS = 1_000_000
"""After which a message arrives."""
Story = dict[int, list[dict[str, Any]]]


def script_of(**changes: Any) -> Script:
    fields: dict[str, Any] = {"victim": 2, "kill_step": 33, "sending": False, "layer": 0, "backward": False}
    return Script(**(fields | {"message": 0, "join_step": 53} | changes))


def rules_of(script: Script) -> Rules:
    return Rules(
        num_peers=PEERS,
        steps=STEPS,
        sync_every=SYNC,
        outer_rate=RATE,
        outer_momentum=MOMENTUM,
        script=script,
    )


def story_of(script: Script) -> Story:
    """Return what peers of an honest technique would say: in step with each other, exact to the last bit but one."""
    generator = np.random.default_rng(3)
    weights, momentum = generator.normal(size=64), np.zeros(64)
    story: Story = {n: [] for n in range(PEERS + (script.victim >= 0))}

    def say(peer: int, kind: str, at_ns: int, **fields: Any) -> None:
        story[peer].append({"kind": kind, "said_ns": at_ns, "seen_ns": at_ns + LATE_NS, **fields})

    def describe(peer: int, kind: str, at_ns: int, step: int, vector: Any, **fields: Any) -> None:
        say(peer, kind, at_ns, step=step, digest=repr(vector.sum()), sketch=vector.tolist(), **fields)

    members, now = list(range(PEERS)), 0
    for begin in range(0, STEPS, SYNC):
        if begin >= script.join_step and script.victim >= 0 and NEWCOMER not in members:
            members.append(NEWCOMER)
            say(NEWCOMER, "signed", now - 1)
        for peer in members:
            describe(peer, "round", now, begin, weights)
        for step in range(begin, begin + SYNC):
            if step == script.kill_step and not script.sending:
                say(script.victim, "struck", now + STEP_NS // 2)
                say(script.victim, "died", now + STEP_NS, code=-9)
                members.remove(script.victim)
            now += STEP_NS
            for peer in members:
                say(peer, "step", now, step=step + 1)
        own = {peer: weights + generator.normal(size=64) * 0.1 for peer in members}
        for peer in members:
            describe(peer, "exchange", now, begin + SYNC, own[peer])
        if script.sending and begin <= script.kill_step < begin + SYNC:
            say(script.victim, "struck", now + 1)
            say(script.victim, "died", now + STEP_NS, code=-9)
            members.remove(script.victim)
        outer = weights - np.mean([own[peer] for peer in members], axis=0)
        momentum = MOMENTUM * momentum + outer
        weights = weights - RATE * (outer + MOMENTUM * momentum)
        now += STEP_NS // 2
        for peer in members:
            describe(peer, "done", now, begin + SYNC, weights, members=list(members))
    for peer in members:
        describe(peer, "round", now, STEPS, weights)
        say(peer, "end", now)
    return story


def checked_run(change: Callable[[Story], None] = lambda story: None, **script: Any) -> CheckedRun:
    made = script_of(**script)
    story = deepcopy(story_of(made))
    change(story)
    return CheckedRun(rules_of(made), story)


def test_survivors_of_a_kill_in_mid_step_recover_at_the_end_of_the_round() -> None:
    run = checked_run()
    assert run.survived
    assert run.parity
    assert run.error < 1e-12
    steps, seconds = run.recovery() or (0, 0.0)
    assert steps == 40 - 33, "33 steps were completed, and the exchange is after the fortieth"
    assert seconds == pytest.approx((7 * STEP_NS + LATE_NS) * 1e-9)
    assert run.join_s() == pytest.approx(10.5 * STEP_NS * 1e-9)
    assert run.round_s() == pytest.approx(10.5 * STEP_NS * 1e-9)
    assert [e.members for e in run.exchanges] == [(0, 1, 2)] * 3 + [(0, 1)] * 3 + [(0, 1, 3)] * 2


def test_a_kill_in_an_exchange_costs_the_step_that_the_exchange_belongs_to() -> None:
    run = checked_run(kill_step=39, sending=True)
    assert run.recovery() == (1, pytest.approx((0.5 * STEP_NS + LATE_NS) * 1e-9))


def test_without_a_kill_there_is_nothing_to_recover_from() -> None:
    run = checked_run(victim=-1, kill_step=-1)
    assert run.survived
    assert run.parity
    assert (run.recovery(), run.join_s()) == (None, None)


def test_a_group_that_fails_at_the_kill_has_not_survived_and_says_why() -> None:
    def fail(story: Story) -> None:
        del story[NEWCOMER][:]
        for peer in (0, 1):
            story[peer] = [m for m in story[peer] if m.get("step", 99) <= 30]
            story[peer].append({"kind": "failed", "reason": "connection closed", "seen_ns": 1})

    run = checked_run(fail)
    assert not run.survived
    assert not run.parity
    assert run.join_s() is None
    assert run.failures == {0: "connection closed", 1: "connection closed"}


def message(story: Story, peer: int, kind: str, step: int) -> dict[str, Any]:
    (found,) = [m for m in story[peer] if (m["kind"], m.get("step")) == (kind, step)]
    return found


def goes_on_without_averaging(story: Story) -> None:
    message(story, 1, "done", 50)["digest"] = "its own"


def names_itself_alone(story: Story) -> None:
    message(story, 1, "done", 50)["members"] = [1]


def names_the_dead(story: Story) -> None:
    for peer in (0, 1):
        message(story, peer, "done", 40)["members"] = [0, 1, 2]


def leaves_a_survivor_out(story: Story) -> None:
    for peer in (0, 1):
        message(story, peer, "done", 50)["members"] = [0]


def joins_with_fresh_weights(story: Story) -> None:
    message(story, NEWCOMER, "round", 60)["digest"] = message(story, 0, "round", 0)["digest"]


def begins_a_later_round_with_old_weights(story: Story) -> None:
    message(story, 1, "round", 50)["digest"] = message(story, 0, "done", 40)["digest"]


def joins_in_the_middle_of_a_round(story: Story) -> None:
    message(story, NEWCOMER, "round", 60)["step"] = 65


def counts_a_round_that_nobody_did(story: Story) -> None:
    for peer in (0, 1):
        message(story, peer, "round", 50)["step"] = 60


def averages_over_one_less(story: Story) -> None:
    message(story, 1, "exchange", 50)["sketch"][5] += 0.01


def takes_another_outer_step(story: Story) -> None:
    sketch = np.array(message(story, 0, "done", 50)["sketch"])
    for peer in (0, 1):
        message(story, peer, "done", 50)["sketch"] = (1.0001 * sketch).tolist()


LIES = {
    goes_on_without_averaging: r"peers hold different weights after step 50",
    names_itself_alone: r"peers name different members of the exchange after step 50",
    names_the_dead: r"peer 2 took no part in the exchange after step 40",
    leaves_a_survivor_out: r"the exchange after step 50 leaves out peer 1",
    joins_with_fresh_weights: r"peer 3 begins the round after step 60 with weights that are not the group's",
    begins_a_later_round_with_old_weights: r"peer 1 begins the round after step 50 with weights that are not",
    joins_in_the_middle_of_a_round: r"peer 3 begins a round after step 65, where the group had none",
    counts_a_round_that_nobody_did: r"peer 0 was told that 60 steps are done when it had done 50",
    averages_over_one_less: r"after step 50 the weights are .* from the outer step on the mean of peers 0, 1",
    takes_another_outer_step: r"after step 50 the weights are 1\.0e-04 from the outer step",
}


@pytest.mark.parametrize("lie", LIES, ids=lambda lie: lie.__name__)
def test_a_lie_is_named(lie: Callable[[Story], None]) -> None:
    with pytest.raises(CaseError, match=LIES[lie]) as caught:
        checked_run(lie)
    assert caught.value.status == "incorrect"


def test_a_victim_that_was_not_killed_makes_the_run_invalid() -> None:
    def live(story: Story) -> None:
        story[2] = [{**m, "code": 0} if m["kind"] == "died" else m for m in story[2]]

    with pytest.raises(CaseError, match="was not killed") as caught:
        checked_run(live)
    assert caught.value.status == "invalid"


@pytest.mark.parametrize(
    ("status", "script"), [("refused", {}), ("crashed", {"victim": -1, "kill_step": -1})]
)
def test_a_breach_is_refused_and_a_failure_without_a_kill_is_a_crash(status: str, script: Any) -> None:
    def fail(story: Story) -> None:
        story[0].append({"kind": "failed", "reason": "it did it", "status": status, "seen_ns": 1})

    with pytest.raises(CaseError, match="it did it") as caught:
        checked_run(fail, **script)
    assert caught.value.status == status


@pytest.mark.parametrize("fault", FAULT.choices)
def test_kills_fall_into_the_second_quarter_and_never_on_the_peer_that_is_evaluated(fault: str) -> None:
    seen = [
        draw(fault, random.Random(seed), num_peers=4, steps=120, sync_every=10, layers=2)
        for seed in range(200)
    ]
    assert seen[0] == draw(fault, random.Random(0), num_peers=4, steps=120, sync_every=10, layers=2)
    if fault == NONE:
        assert {(s.victim, s.kill_step) for s in seen} == {(-1, -1)}
        return
    assert {s.victim for s in seen} == {1, 2, 3}
    steps = {s.kill_step for s in seen}
    assert steps == ({39, 49, 59} if fault == SENDING else set(range(30, 60)))
    assert {s.message for s in seen} == set(range(6))
    assert {(s.layer, s.backward) for s in seen} == {(0, False), (0, True), (1, False), (1, True)}


@pytest.mark.parametrize("backward", [False, True])
def test_a_layer_strikes_where_it_computes(backward: bool) -> None:
    model, struck = make_model(), []
    kill_in_layer(model, 1, backward=backward, strike=lambda: struck.append(torch.is_grad_enabled()))
    symbols = torch.zeros(2, 9, dtype=torch.long)
    with torch.no_grad():
        model(symbols)
    assert len(struck) == (not backward), "without backward only forward strikes"
    loss_and_gradients(model, symbols)
    assert len(struck) == 1 if backward else 2


def test_sketches_are_linear_and_show_a_change_of_one_element() -> None:
    sketch = Sketch(1000, seed=5)
    a, b = torch.randn(2, 1000, generator=torch.Generator().manual_seed(1)).unbind()
    left = np.array(sketch.of(a.double() + 2 * b.double()))
    assert np.allclose(left, np.array(sketch.of(a)) + 2 * np.array(sketch.of(b)), rtol=0, atol=1e-9)
    changed = a.clone()
    changed[999] += 1.0
    assert sketch.of(changed) != sketch.of(a)
    assert sketch.of(a) == Sketch(1000, seed=5).of(a)
    assert sketch.of(a) != Sketch(1000, seed=6).of(a)


@pytest.mark.parametrize(("ranks", "legal"), [(2, False), (3, True)])
def test_two_must_be_left_to_go_on(ranks: int, legal: bool) -> None:
    assert (problems({"ranks": ranks}) == []) == legal


def test_the_story_is_honest() -> None:
    assert FAULT.default == COMPUTING
    assert {len(of_kind(ms, "failed")) for ms in story_of(script_of()).values()} == {0}
