"""QSR: local steps whose rounds grow with the inverse square of the learning rate.

Gu et al., 2024, "A Quadratic Synchronization Rule for Distributed Deep Learning" (arXiv:2310.14423).

Algorithm: every rank takes H steps of the inner optimiser on its own batches; then θ ← mean over ranks of θ. While the
learning rate warms up H is ``least``. After that H is set anew when a round begins: max(``least``, ⌊(α/η)²⌋), η being
the learning rate of its first step; α is ``growth`` times the peak rate. The last round ends with the run.
Cost of a synchronisation: 2·(n − 1)/n · 4P bytes in 2·(n − 1) messages. Memory: scratch of 2/n · 4P.
Limits: with H = 1 and plain SGD it equals synchronous training. Its gain needs a learning rate that falls.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from paceline import technique
from paceline.families.training.api.exchange import RingAverage, ring_cost
from paceline.families.training.api.replica import Comm, Cost, FlatReplica, Task


def growing_rounds(task: Task, least: int, growth: float) -> list[int]:
    """Return the steps with which rounds end."""
    ends, begin = [], 0
    while begin < task.steps:
        grown = (
            int((growth * task.peak_rate / task.rate(begin)) ** 2) if begin >= task.warmup_steps else least
        )
        begin = min(begin + max(grown, least), task.steps)
        ends.append(begin - 1)
    return ends


@technique(
    name="qsr",
    family="training",
    implements=("data_parallel",),
    summary="local steps in rounds that grow as the learning rate falls, then the mean of all parameters",
    paper="qsr",
    properties={
        "exact": False,
        "replicas": "apart",
        "agree": "own-rounds",
        "equals_ddp": {"optimizer": "sgd", "arguments": {"least": 1, "growth": 0.0}},
    },
    fidelity={
        "source": {
            "read": "code",
            "paper": "abstract of arXiv:2310.14423",
            "code": "github.com/hmgxr128/QSR: localopt.py, main.py, example-run-vit-localadamw.sh and -resume.sh",
        },
        "deviations": (
            "α is given in units of the peak rate.",
            "Moments are not averaged, which is the authors' default too (avg-m 0, avg-v 0).",
            (
                "The learning rate falls to a tenth of its peak, as for all techniques here; the authors' falls to "
                "10⁻⁶ of 0.008, so that their last rounds are longer, and its warm-up takes 10⁴ steps."
            ),
        ),
        "constants": {
            "least": {
                "here": 4,
                "authors": "4 (min-h, init-h), example-run-vit-localadamw.sh",
                "official": 4,
                "source": "github.com/hmgxr128/QSR: example-run-vit-localadamw.sh",
            },
            "growth": {
                "here": 2.2,
                "authors": "2.19: 0.0175 at a peak of 0.008, example-run-vit-localadamw-resume.sh",
                "official": 2.1875,
                "source": "github.com/hmgxr128/QSR: example-run-vit-localadamw-resume.sh",
                "differs": "0.0175 over a peak of 0.008, rounded, since it is in units of the peak rate",
            },
        },
        "checked_by": (
            "tests/unit/test_growing_rounds.py::test_rounds_grow_with_the_inverse_square_of_the_rate",
            "tests/unit/test_growing_rounds.py::test_parameters_are_averaged_when_rounds_end_and_at_no_other_step",
        ),
    },
)
class Qsr(FlatReplica):
    """Average parameters at the end of each round."""

    def __init__(self, task: Task, comm: Comm, *, least: int = 4, growth: float = 2.2) -> None:
        super().__init__(task, comm)
        self.ends = frozenset(growing_rounds(task, least, growth))
        count, device = self.flat.values.numel(), task.device
        self.ring = RingAverage(comm, count, dtype=torch.float32, device=device)

    def exchange_parameters(self, step: int) -> None:
        """Average the parameters when a round ends."""
        if step in self.ends:
            self.ring.run(self.flat.values)

    def round_ends(self) -> Sequence[int]:
        """Return the steps with which rounds end."""
        return sorted(self.ends)


def cost(task: Task, *, least: int, growth: float) -> Cost:
    """Return the header's formula for all rounds."""
    rounds = len(growing_rounds(task, least, growth))
    sent, messages = ring_cost(task.num_parameters, task.world_size)
    return Cost(sent_bytes=rounds * sent, peak_bytes=sent, messages=rounds * messages)
