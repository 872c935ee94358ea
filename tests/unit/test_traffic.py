"""Bytes that ranks send, by who counts them: the communicator, what backends are handed, and the kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from paceline.baselines.training import ddp, ddp_naive, ddp_ring, flexdemo, fsdp
from record_factory import in_memory, make_run, measurement
from thread_ranks import on_ranks_of_threads
from training_task import SMALL, make_comm, make_task, on_ranks

from paceline.analysis.points import points_of
from paceline.families.collectives.api.problem import chunk_bounds
from paceline.families.training.api.decoupled import message_bytes
from paceline.families.training.api.replica import Cost, Replica, Task
from paceline.families.training.core.loop import carried, judging
from paceline.families.training.core.loop.carried import Carried, KernelCounts, tells_techniques_apart
from paceline.families.training.core.loop.traffic import Traffic, between_halves
from paceline.families.training.core.loop.trained import Trained
from paceline.families.training.spec import FAMILY
from paceline.report.points.page import diagnostic_grid
from paceline.worker.communication.comm import Comm, Counters
from paceline.worker.communication.fault import Fault
from paceline.worker.communication.transport import ThreadHub, ThreadTransport
from paceline.worker.network.namespace import InterfaceCounters, overstated
from paceline.worker.ranks.session import CaseError

FLOATS = 12
BYTES = 4 * FLOATS
STEPS = 4


def handed_on_two_ranks(call: Callable[[Comm], Any]) -> list[Counters]:
    """Return the counts of two ranks that are threads after each made a call."""
    comms = [make_comm(rank, hub) for hub in [ThreadHub(2, timeout_s=60)] for rank in range(2)]
    on_ranks_of_threads(lambda rank: call(comms[rank]), 2)
    return [comm.counters for comm in comms]


def tensor(count: int = FLOATS) -> torch.Tensor:
    return torch.ones(count)


CALLS: dict[str, tuple[Callable[[Comm], Any], list[int]]] = {
    "all_reduce": (lambda c: c.backend.all_reduce(tensor()), [BYTES, BYTES]),
    "all_reduce of halves": (lambda c: c.backend.all_reduce(tensor().half()), [BYTES // 2, BYTES // 2]),
    "start_all_reduce": (lambda c: c.backend.start_all_reduce(tensor()).wait(), [BYTES, BYTES]),
    "all_gather": (lambda c: c.backend.all_gather(tensor(2 * FLOATS), tensor()), [BYTES, BYTES]),
    "start_all_gather": (
        lambda c: c.backend.start_all_gather(tensor(2 * FLOATS), tensor()).wait(),
        [BYTES, BYTES],
    ),
    "reduce_scatter": (lambda c: c.backend.reduce_scatter(tensor(FLOATS // 2), tensor()), [BYTES, BYTES]),
    "start_reduce_scatter": (
        lambda c: c.backend.start_reduce_scatter(tensor(FLOATS // 2), tensor()).wait(),
        [BYTES, BYTES],
    ),
    "broadcast from rank 1": (lambda c: c.backend.broadcast(tensor(), 1), [0, BYTES]),
    "reduce": (lambda c: c.backend.reduce(tensor(), 0), [BYTES, BYTES]),
    "all_to_all": (lambda c: c.backend.all_to_all(tensor(), tensor()), [BYTES, BYTES]),
}


@pytest.mark.parametrize("name", CALLS)
def test_what_is_handed_to_a_backend_is_counted_whatever_it_fills(name: str) -> None:
    call, expected = CALLS[name]
    counts = handed_on_two_ranks(call)
    assert [c.backend_bytes for c in counts] == expected
    assert [c.backend_calls for c in counts] == [1, 1]
    assert [sum(c.sent_bytes) for c in counts] == [0, 0]
    counts[0].reset()
    assert counts[0].backend_bytes == counts[0].backend_calls == 0


def test_a_call_that_a_fault_leaves_out_hands_nothing_over() -> None:
    comm = Comm(ThreadTransport(ThreadHub(1), 0), faults=[Fault(kind="skip", rank=0)])
    comm.arm_faults(True)
    comm.backend.all_reduce(tensor())
    assert comm.counters.backend_bytes == comm.counters.backend_calls == 0
    comm.backend.all_reduce(tensor())
    assert comm.counters.backend_bytes == BYTES


def test_closed_forms_of_what_is_handed_over() -> None:
    task = make_task(world_size=4, steps=10)
    gradients = 4 * task.num_parameters * 10
    assert ddp.cost(task).backend_bytes == ddp_naive.cost(task).backend_bytes == gradients
    # nano's dimensions are multiples of four, so that shares of whole rows are quarters
    assert fsdp.cost(task, reshard=True).backend_bytes == gradients * (2 / 4 + 1)
    assert fsdp.cost(task, reshard=False).backend_bytes == gradients * (1 / 4 + 1)
    assert fsdp.cost(make_task(steps=10), reshard=True).backend_bytes is None  # one rank calls nothing


def sent_in_a_step(kind: Callable[[Task, Comm], Replica], ranks: int) -> list[list[int]]:
    """Return the bytes by sender and receiver of a step without forward and backward."""

    def step(replica: Replica) -> None:
        replica.exchange_gradients(0)
        replica.update(0)
        replica.exchange_parameters(0)

    return [r.comm.counters.sent_bytes for r, _ in on_ranks(kind, ranks, step, size=SMALL)]


def between(sent: list[list[int]]) -> float:
    found = between_halves(sent)
    assert found is not None
    return found


def test_components_leave_a_group_where_a_ring_sends_gradients_through() -> None:
    count = make_task(size=SMALL).num_parameters
    ring, flexible = (sent_in_a_step(kind, 4) for kind in (ddp_ring.DdpRing, flexdemo.FlexDeMo))
    assert between(ring) == pytest.approx(2 * 3 / 2 * 4 * count, rel=0.001)
    shares = [stop - start for start, stop in chunk_bounds(count, 2)]
    assert between(flexible) == 2 * sum(message_bytes(share, 64, "dct") for share in shares)
    assert sum(map(sum, flexible)) > 2 * between(flexible)  # the rest stays inside
    assert between(flexible) <= between(ring) / 16


def test_one_group_of_all_ranks_sends_what_a_full_ring_does() -> None:
    ring, flexible = (sent_in_a_step(kind, 2) for kind in (ddp_ring.DdpRing, flexdemo.FlexDeMo))
    assert flexible == ring


def test_halves_are_of_consecutive_ranks_and_of_an_even_number() -> None:
    four = [[0, 1, 2, 4], [8, 0, 16, 32], [64, 128, 0, 256], [512, 1024, 2048, 0]]
    assert between_halves(four) == 2 + 4 + 16 + 32 + 64 + 128 + 512 + 1024
    assert between_halves([[0, 1], [2, 0]]) == 3
    assert between_halves([[0, 1, 1], [1, 0, 1], [1, 1, 0]]) is None
    assert between_halves([[0]]) is None


def make_session(**changes: Any) -> Any:
    """Return a session of two ranks, both of which sent what this one did, in namespaces of their own."""
    facts: dict[str, Any] = {
        "control": SimpleNamespace(gather=lambda rows: [rows, rows], barrier=lambda: None),
        "interface": "data0",
        "control_interface": "control0",
        "interface_shared": False,
        "device": SimpleNamespace(torch_type="cpu"),
    }
    return SimpleNamespace(**(facts | changes))


def make_trained(**changes: Any) -> Trained:
    facts: dict[str, Any] = {
        "sent_bytes": 1000.0,
        "sent_to": [0.0, 1000.0],
        "pass_bytes": [0.0, 0.0],
        "carried": Carried(data_bytes=1066.0, data_packets=1.0),
    }
    return Trained(**(facts | changes))


def traffic(trained: Trained, uncounted: str | None = None, **session: Any) -> Traffic:
    return Traffic(
        make_session(**session),
        trained,
        steps=STEPS,
        uncounted=uncounted,
        passes_counted=False,
    )


def values(found: Traffic) -> dict[str, float]:
    return {name: metric["samples"][0] for name, metric in found.metrics().items()}


def test_the_kernels_count_stands_beside_the_communicators() -> None:
    measured = values(traffic(make_trained()))
    assert measured["kernel_over_counted"] == 1.066
    assert measured["kernel_bytes_total"] == 2 * 1066 / STEPS
    assert measured["kernel_payload_bytes"] == 2 * 1000 / STEPS
    assert measured["bisection_bytes"] == 1000 / STEPS  # rank 1's row is rank 0's, to itself
    assert measured["backend_bytes"] == measured["backend_calls"] == 0


def test_what_a_backend_was_handed_is_told_where_nobody_counts_what_it_sends() -> None:
    trained = make_trained(sent_bytes=0.0, sent_to=[0.0, 0.0], backend_calls=2, backend_bytes=80.0)
    found = traffic(trained, uncounted="the backend moves them")
    measured = values(found)
    assert (measured["backend_bytes"], measured["backend_calls"]) == (80 / STEPS, 2 / STEPS)
    for name in ("wire_bytes", "bisection_bytes", "kernel_over_counted"):
        assert found.absent[name] == "the backend moves them"
    hidden = traffic(make_trained(), uncounted="a library moves them")
    assert not {"backend_bytes", "backend_calls"} & set(values(hidden))
    assert {"backend_bytes", "backend_calls"} <= set(hidden.absent)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"control_interface": None}, "more than the technique's messages"),
        ({"device": SimpleNamespace(torch_type="cuda")}, "not all of them"),
        ({"interface_shared": True}, "share the loopback"),
        ({"interface": None}, "no network interface"),
    ],
)
def test_counters_that_hold_something_else_are_not_set_beside(changes: dict[str, Any], reason: str) -> None:
    shared = changes.get("interface_shared") or "interface" in changes
    found = traffic(make_trained(carried=Carried() if shared else Carried(data_bytes=1.0)), **changes)
    assert "kernel_over_counted" not in values(found)
    assert reason in found.absent["kernel_over_counted"]
    assert not tells_techniques_apart(make_session(**changes))


def test_nothing_over_nothing_is_no_ratio() -> None:
    found = traffic(make_trained(sent_bytes=0.0))
    assert "kernel_over_counted" not in values(found)
    assert found.absent["kernel_over_counted"] == "nothing was sent"


@pytest.mark.parametrize(("counted", "true"), [(1000.0, True), (1000.5, False), (2000.0, False)])
def test_a_byte_that_was_counted_was_carried(counted: float, true: bool) -> None:
    assert (overstated(1000.0, counted) is None) == true


@pytest.mark.parametrize(
    ("sent", "changes", "reason"),
    [
        (1000.0, {}, None),
        (1100.0, {}, r"the communicator counted 2200 bytes, the kernel carried 2132"),
        (1100.0, {"control_interface": None}, None),
        (1100.0, {"device": SimpleNamespace(torch_type="cuda")}, None),
    ],
)
def test_a_communicator_that_counts_more_than_the_kernel_carried_is_refused(
    sent: float, changes: dict[str, Any], reason: str | None
) -> None:
    sandbox: Any = SimpleNamespace(library=False)
    trained = make_trained(sent_bytes=sent)
    if reason is None:
        assert judging.uncounted(make_session(**changes), sandbox, trained) is None
        return
    with pytest.raises(CaseError, match=reason) as raised:
        judging.uncounted(make_session(**changes), sandbox, trained)
    assert raised.value.status == "refused"


class Promising:
    """Stands for a technique whose closed form is this module's ``cost``."""

    def __init__(self) -> None:
        self.task = make_task()
        self.model = self.task.model


def cost(task: Task) -> Cost:
    """State bytes."""
    return Cost(sent_bytes=8.0 * STEPS)


def test_a_closed_form_of_bytes_that_nobody_counts_is_refused() -> None:
    sandbox: Any = SimpleNamespace(replica=Promising(), watch=nullcontext)
    setting: Any = SimpleNamespace(steps=STEPS, priced=lambda task: task)
    case: Any = SimpleNamespace(options={})
    counted = {"wire_bytes": {"samples": [8.0]}}
    assert judging.predicted(sandbox, case, setting, counted) == {"wire_bytes": 8.0}
    with pytest.raises(CaseError, match="states wire_bytes, which nobody could measure") as raised:
        judging.predicted(sandbox, case, setting, {"backend_bytes": {"samples": [8.0]}})
    assert raised.value.status == "refused"


def reading(interface: str, count: int) -> InterfaceCounters:
    """Return counters after a number of packets of 166 bytes on data0, of 266 on control0."""
    size = 166 if interface == "data0" else 266
    return InterfaceCounters(tx_bytes=size * count, tx_packets=count, rx_bytes=0, rx_packets=0)


@pytest.mark.parametrize(
    ("library", "control_interface", "packets", "around_bytes"),
    [(False, "control0", 5, 2 * 266), (True, "control0", 2, 2 * 266), (False, None, 2, 0)],
)
def test_what_copies_of_weights_carry_is_left_out_where_it_is_none_of_the_technique(
    library: bool,
    control_interface: str | None,
    packets: int,
    around_bytes: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    moments: Iterator[int] = iter([0, 1, 4, 5])
    now = [0]
    session = make_session(control_interface=control_interface)
    counts = KernelCounts(SimpleNamespace(session=session, library=library))  # type: ignore[arg-type]

    def read(interface: str) -> InterfaceCounters:
        if interface == "data0":
            now[0] = next(moments)
        return reading(interface, now[0])

    monkeypatch.setattr(carried, "read_counters", read)
    monkeypatch.setattr(carried, "sent_again_bytes", lambda: 0)
    counts.begin()
    with counts.left_out():
        pass
    found = counts.end()
    assert found.data_bytes == 166 * packets
    assert found.payload_bytes == 100 * packets
    assert found.around_bytes == around_bytes


def test_interfaces_that_are_shared_tell_nothing() -> None:
    counts = KernelCounts(SimpleNamespace(session=make_session(interface_shared=True), library=True))  # type: ignore[arg-type]
    counts.begin()
    found = counts.end()
    assert found.data_bytes is None
    assert found.payload_bytes is None


def test_a_figure_of_two_metrics_needs_both() -> None:
    (derived,) = [d for d in FAMILY.derived if d.name == "kernel_over_busiest"]
    assert derived.of({"ranks": 2}, 2100.0, 1000.0) == 1.05
    assert derived.of({"ranks": 2}, 2100.0, 0.0) is None
    run = make_run()

    def lines(label: str, metrics: dict[str, float]) -> list[Any]:
        return [
            measurement(run, label, 0, [value], metric=name, family="training")
            for name, value in metrics.items()
        ]

    both = lines("ring", {"kernel_bytes_total": 2100.0, "wire_bytes": 1000.0})
    (point,) = points_of(in_memory(run, both + lines("ddp", {"kernel_bytes_total": 2100.0})))
    rows = [[cell.text for cell in row] for group in diagnostic_grid(point).groups for row in group]
    (found,) = [row for row in rows if row[0].startswith("kernel_over_busiest = ")]
    assert found[1:3] == ["ring", "1.05"]
