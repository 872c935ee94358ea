"""Training behind shaped links: the kernel confirms the bytes, and finds those that the communicator never saw."""

from __future__ import annotations

import pytest
from measured import record_of

from paceline.families.training.api.sizes import SIZES
from paceline.records.format.record import Measurement
from paceline.spec.suites.suite_file import load_suite
from paceline.worker.network.links import supported
from paceline.worker.network.namespace import unaccounted

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif((reason := supported()) is not None, reason=reason or "shaped links work"),
]
AROUND = '''
"""Averages gradients over the carrier itself, by a name that no reader finds."""

from paceline import technique
from paceline.families.training.api.replica import Comm, FlatReplica, Task


@technique(
    name="goes-unseen",
    family="training",
    implements=("data_parallel",),
    summary="averages gradients over the carrier itself",
    properties={"exact": True, "replicas": "identical"},
)
class GoesUnseen(FlatReplica):
    """Average unseen."""

    def exchange_gradients(self, step: int) -> None:
        """Average without the communicator."""
        getattr(self.comm, "_trans" + "port").all_reduce(self.flat.gradients)
        self.flat.gradients.div_(self.comm.world_size)


def cost(task: Task) -> None:
    return None
'''
TWICE = '''
"""Averages gradients through the communicator, and lets a mistake of the counts stand in: all is counted twice."""

import torch

from paceline import technique
from paceline.families.training.api.exchange import RingAverage
from paceline.families.training.api.replica import Comm, FlatReplica, Task


@technique(
    name="counts-twice",
    family="training",
    implements=("data_parallel",),
    summary="sends once and is counted twice",
    properties={"exact": True, "replicas": "identical"},
)
class CountsTwice(FlatReplica):
    """Send once, be counted twice."""

    def __init__(self, task: Task, comm: Comm) -> None:
        super().__init__(task, comm)
        count = self.flat.values.numel()
        self.ring = RingAverage(comm, count, dtype=torch.float32, device=task.device)

    def exchange_gradients(self, step: int) -> None:
        """Average."""
        counts = getattr(self.comm, "coun" + "ters")
        before = list(counts.sent_bytes), list(counts.received_bytes)
        self.ring.run(self.flat.gradients)
        for found, was in zip((counts.sent_bytes, counts.received_bytes), before):
            found[:] = [2 * now - then for now, then in zip(found, was)]


def cost(task: Task) -> None:
    return None
'''
SUITE = """
suite: training/counted
version: 1
family: training
description: The kernel counts what the communicator does.
workload:
  {op: data_parallel, size: nano, batch: 8, context: 16, steps: 60, window: 20, evaluations: 2, learning_rate: 0.01}
baseline: ddp-ring
techniques: [ddp-ring, ddp, ddp-naive, fsdp, alone, goes-unseen, counts-twice]
matrix: {ranks: [2], link: [1gbit]}
protocol: {launches: 1, timeout: 60s}
"""


RANKS = 2
GRADIENTS = 4 * SIZES["nano"].parameters(64)
"""Bytes of all gradients, in float32."""
CALLS = {"ddp-ring": (0, 0, 2), "ddp": (1, 0, 0), "ddp-naive": (14, 0, 0), "fsdp": (3, 6, 0)}
"""Of a step: calls that move an all-reduce's bytes (Gloo's reduce-scatter among them), all-gathers, and messages that a
rank sends by itself. Tensors are 14, and what is sharded by itself is two layers and the rest, gathered twice."""
NOTE_BYTES, NOTES = 48, 3
"""Gloo's own: the six words before each message, and as many from a receiver and a sender that are ready for it."""


def gloo_notes(calls: tuple[int, int, int]) -> int:
    """Return the bytes of a step's notes at most, over all ranks.

    Gloo sends each rank's share of a ring in two segments (more where one were above a MiB): 2·(n − 1) messages of a
    rank in an all-gather, twice as many in an all-reduce.
    """
    all_reduces, all_gathers, own = calls
    messages = (4 * all_reduces + 2 * all_gathers) * (RANKS - 1) + own
    return RANKS * messages * NOTES * NOTE_BYTES


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Measurement]:
    folder = tmp_path_factory.mktemp("counted")
    files, path = [folder / "goes_unseen.py", folder / "counts_twice.py"], folder / "counted.yaml"
    for file, text in zip(files, (AROUND, TWICE), strict=True):
        file.write_text(text)
    path.write_text(SUITE)
    suite = load_suite(path, extra=files)
    return {(m.label, m.metric.name): m for m in record_of([suite], folder, runner="netns-cpu").measurements}


def value(measured: dict[tuple[str, str], Measurement], label: str, metric: str) -> float:
    found = measured[(label, metric)].value
    assert found is not None
    return found


def test_the_kernel_confirms_what_the_communicator_counted(
    measured: dict[tuple[str, str], Measurement],
) -> None:
    counted = 2 * value(measured, "ddp-ring", "wire_bytes")
    assert counted <= value(measured, "ddp-ring", "kernel_bytes_total") <= 1.1 * counted
    assert value(measured, "no-communication", "kernel_bytes_total") < 0.01 * counted
    assert 1 <= value(measured, "ddp-ring", "kernel_over_counted") <= 1.1
    payload = value(measured, "ddp-ring", "kernel_payload_bytes")
    assert counted <= payload <= 1.01 * counted + gloo_notes(CALLS["ddp-ring"])
    assert ("no-communication", "kernel_over_counted") not in measured


def test_the_librarys_bytes_are_the_kernels(measured: dict[tuple[str, str], Measurement]) -> None:
    counted = 2 * value(measured, "ddp-ring", "wire_bytes")
    assert counted <= value(measured, "ddp", "kernel_bytes_total") <= 1.1 * counted
    assert 1.9 * counted <= value(measured, "fsdp", "kernel_bytes_total") <= 2.2 * counted
    for label in ("ddp", "fsdp"):
        assert (label, "wire_bytes") not in measured
        (first,) = [m for (name, _), m in measured.items() if name == label and m.accounting]
        assert first.accounting is not None
        assert first.accounting["curve"]["bytes_from"] == "kernel"


@pytest.mark.parametrize("label", ["ddp", "ddp-naive", "fsdp"])
def test_the_backends_bytes_are_those_of_its_rings(
    label: str, measured: dict[tuple[str, str], Measurement]
) -> None:
    rings = {"ddp": 2, "ddp-naive": 2, "fsdp": 2 + 2}[label]
    sent = rings * (RANKS - 1) * GRADIENTS
    assert sent <= value(measured, label, "kernel_payload_bytes") <= 1.01 * sent + gloo_notes(CALLS[label])
    assert (label, "kernel_over_counted") not in measured


def test_counting_more_than_was_carried_is_refused(measured: dict[tuple[str, str], Measurement]) -> None:
    (found,) = [m for (label, _), m in measured.items() if label == "counts-twice"]
    assert found.status == "refused"
    assert "the communicator counted" in (found.reason or "")


def test_bytes_that_went_around_the_communicator_are_refused(
    measured: dict[tuple[str, str], Measurement],
) -> None:
    (found,) = [m for (label, _), m in measured.items() if label == "goes-unseen"]
    assert found.status == "refused"
    assert "the kernel carried" in (found.reason or "")


@pytest.mark.parametrize(("carried", "known"), [(1100.0, True), (1111.0, False), (5000.0, False)])
def test_headers_are_allowed_for_and_no_more(carried: float, known: bool) -> None:
    assert (unaccounted(carried, 1000.0, messages=0, fixed=10) is None) == known
