"""Training behind shaped links: the kernel confirms the bytes, and finds those that the communicator never saw."""

from __future__ import annotations

import pytest
from measured import record_of

from paceline.record import Measurement
from paceline.suite import load_suite
from paceline.worker.namespace import unaccounted
from paceline.worker.netns import supported

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif((reason := supported()) is not None, reason=reason or "shaped links work"),
]
AROUND = '''
"""Averages gradients over the carrier itself, by a name that no reader finds."""

from paceline import technique
from paceline.families.training.replica import Comm, FlatReplica, Task


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
SUITE = """
suite: training/counted
version: 1
family: training
why: The kernel counts what the communicator does.
workload:
  {op: data_parallel, size: nano, batch: 8, context: 16, steps: 60, window: 20, evaluations: 2, learning_rate: 0.01}
baseline: ddp-ring
techniques: [ddp-ring, ddp, fsdp, alone, goes-unseen]
matrix: {ranks: [2], link: [1gbit]}
protocol: {launches: 1, timeout: 60s}
"""


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Measurement]:
    folder = tmp_path_factory.mktemp("counted")
    file, path = folder / "goes_unseen.py", folder / "counted.yaml"
    file.write_text(AROUND)
    path.write_text(SUITE)
    suite = load_suite(path, extra=[file])
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
    assert value(measured, "alone", "kernel_bytes_total") < 0.01 * counted


def test_the_librarys_bytes_are_the_kernels(measured: dict[tuple[str, str], Measurement]) -> None:
    counted = 2 * value(measured, "ddp-ring", "wire_bytes")
    assert counted <= value(measured, "ddp", "kernel_bytes_total") <= 1.1 * counted
    assert 1.9 * counted <= value(measured, "fsdp", "kernel_bytes_total") <= 2.2 * counted
    for label in ("ddp", "fsdp"):
        assert (label, "wire_bytes") not in measured
        (first,) = [m for (name, _), m in measured.items() if name == label and m.accounting]
        assert first.accounting is not None
        assert first.accounting["curve"]["bytes_from"] == "kernel"


def test_bytes_that_went_around_the_communicator_are_refused(
    measured: dict[tuple[str, str], Measurement],
) -> None:
    (found,) = [m for (label, _), m in measured.items() if label == "goes-unseen"]
    assert found.status == "refused"
    assert "the kernel carried" in (found.reason or "")


@pytest.mark.parametrize(("carried", "known"), [(1100.0, True), (1111.0, False), (5000.0, False)])
def test_headers_are_allowed_for_and_no_more(carried: float, known: bool) -> None:
    assert (unaccounted(carried, 1000.0, messages=0, fixed=10) is None) == known
