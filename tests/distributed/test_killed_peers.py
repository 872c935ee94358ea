"""Peers are really killed, in the middle of a step and of an exchange: who can goes on, and who lies is refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from measured import record_of

from paceline.records.format.record import Measurement
from paceline.spec.suites.suite_file import load_suite

MUTANTS = sorted((Path(__file__).parents[1] / "mutants" / "churn").glob("*.py"))
REFUSALS = {
    "goes-on-alone": r"peers hold different weights after step \d+",
    "joins-fresh": r"peer 3 begins the round after step \d+ with weights that are not the group's",
    "counts-ahead": r"peer 0 was told that 25 steps are done when it had done 20",
    "leaves-one-out": r"after step 5 the weights are .* from the outer step on the mean of peers 0, 1, 2",
}
SYNC_EVERY, STEPS = 5, 120
TRAINING = """
suite: training/{fault}
version: 1
family: training
description: Peers die.
workload: {{op: churn, size: nano, batch: 12, context: 16, learning_rate: 0.01, warmup_steps: 4, fault: {fault}}}
baseline: elastic-diloco
techniques:
  - {{technique: elastic-diloco, options: {{sync_every: 5, outer_momentum: 0.6}}}}
{others}
matrix: {{ranks: [3], steps: [120], evaluations: [4], eval_batch: [64]}}
protocol: {{launches: 1}}
"""
COLLECTIVES = """
suite: collectives/killed
version: 1
family: collectives
description: Peers die.
workload: {op: churn, steps: 12, payload: integers}
baseline: elastic-allreduce
techniques: [elastic-allreduce]
matrix: {size_bytes: [64KiB], ranks: [3]}
protocol: {launches: 1}
"""
OTHERS = (
    "  - {technique: static-diloco, options: {sync_every: 5, outer_momentum: 0.6}}",
    *(f"  - {name}" for name in REFUSALS),
)
TRIES = 3
"""On a busy machine a newcomer may come when all is over; nothing is seen of what it does then."""
Found = dict[tuple[str, str], dict[str, Measurement]]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Found:
    """Return measurements by metric, by the suite's last word and the technique, all of one launch."""
    folder = tmp_path_factory.mktemp("killed")
    texts = {
        "computing": TRAINING.format(fault="kill-computing", others="\n".join(OTHERS)),
        "sending": TRAINING.format(fault="kill-sending", others=""),
        "none": TRAINING.format(fault="none", others=OTHERS[0]),
        "collectives": COLLECTIVES,
    }
    suites = []
    for name, text in texts.items():
        path = folder / f"{name}.yaml"
        path.write_text(text.lstrip())
        suites.append(load_suite(path, extra=MUTANTS if name == "computing" else []))
    for attempt in range(TRIES):
        grouped: Found = {}
        for m in record_of(suites, folder / str(attempt)).measurements:
            kind = str(m.params.get("fault", "kill-collectives")).removeprefix("kill-")
            grouped.setdefault((kind, m.label), {})[m.metric.name] = m
        if not any(came_too_late(measured) for measured in grouped.values()):
            break
    return grouped


def came_too_late(measured: dict[str, Measurement]) -> bool:
    """Tell whether a group went on without its dead peer, and its newcomer had no exchange with it."""
    values = {name: m.value for name, m in measured.items() if m.status == "ok"}
    return values.get("survived") == 1 and values.get("joined") == 0


def value(found: Found, kind: str, technique: str, metric: str) -> float | None:
    measured = found[kind, technique]
    assert {m.status for m in measured.values()} == {"ok"}, {m.reason for m in measured.values()}
    return measured[metric].value


@pytest.mark.parametrize(("fault", "within"), [("computing", SYNC_EVERY), ("sending", 1)])
def test_survivors_of_an_elastic_group_go_on_and_a_newcomer_becomes_one_of_them(
    fault: str, within: int, found: Found
) -> None:
    for metric in ("survived", "joined", "state_parity"):
        assert value(found, fault, "elastic-diloco", metric) == 1, metric
    steps = value(found, fault, "elastic-diloco", "kill_recovery_steps")
    assert steps is not None
    assert 1 <= steps <= within
    seconds = value(found, fault, "elastic-diloco", "kill_recovery_s")
    assert seconds is not None
    assert seconds > 0


def test_while_nobody_dies_an_elastic_group_trains_as_a_fixed_one(found: Found) -> None:
    losses = [value(found, "none", name, "eval_loss") for name in ("elastic-diloco", "static-diloco")]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5), "sums in another order"
    assert value(found, "none", "static-diloco", "survived") == 1


def test_a_killed_peer_costs_little_of_the_loss(found: Found) -> None:
    undisturbed = value(found, "none", "elastic-diloco", "eval_loss")
    assert value(found, "computing", "elastic-diloco", "eval_loss") == pytest.approx(undisturbed, rel=0.03)


def test_members_are_those_who_lived_at_each_exchange(found: Found) -> None:
    (accounting,) = filter(None, (m.accounting for m in found["computing", "elastic-diloco"].values()))
    script, members = accounting["script"], dict(map(tuple, accounting["members"]))
    survivors = [n for n in range(3) if n != script["victim"]]
    assert sorted(members) == list(range(SYNC_EVERY, STEPS + 1, SYNC_EVERY))
    killed_in = script["kill_step"] // SYNC_EVERY * SYNC_EVERY + SYNC_EVERY
    assert members[killed_in - SYNC_EVERY] == [0, 1, 2]
    assert members[killed_in] == survivors
    assert members[STEPS] == [*survivors, 3]


def test_a_fixed_group_ends_in_a_reason(found: Found) -> None:
    assert value(found, "computing", "static-diloco", "survived") == 0
    measured = found["computing", "static-diloco"]
    (absent,) = filter(None, (m.absent for m in measured.values()))
    for metric in ("kill_recovery_steps", "kill_recovery_s", "join_s", "eval_loss", "excess_loss"):
        assert metric not in measured
        assert re.search(r"the survivors did not finish: .*[Cc]onnection", absent[metric]), absent[metric]


@pytest.mark.parametrize("technique", REFUSALS)
def test_who_goes_on_wrongly_is_refused(technique: str, found: Found) -> None:
    measured = found["computing", technique]
    assert {m.status for m in measured.values()} == {"incorrect"}
    (reason,) = {m.reason for m in measured.values()}
    assert re.search(REFUSALS[technique], reason or ""), reason


def test_all_reduces_outlast_a_peer_too(found: Found) -> None:
    for metric in ("survived", "joined", "state_parity"):
        assert value(found, "collectives", "elastic-allreduce", metric) == 1, metric
