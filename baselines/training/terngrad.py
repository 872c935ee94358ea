"""TernGrad: gradients travel as −s, 0 or +s, drawn so that their expectation is the clipped gradient.

Wen et al., "TernGrad: Ternary Gradients to Reduce Communication in Distributed Deep Learning" (NIPS 2017), algorithm 1;
clipping, section 3.3.

Algorithm (for each step):
1. Each rank clips its gradient to c standard deviations of its layer and draws ternary codes, two bits each.
2. Ranks gather each other's codes and scales; the mean of what they stand for is every rank's gradient.
3. The inner optimiser takes its step.

Cost of a step: (n − 1)·(P/4 + 4 bytes for each layer) in n − 1 messages: 1/16 of a gradient for each other rank.
Memory: n messages and the sum, 4P.
Limits: traffic grows with n; the variance of a code grows with the ratio of its layer's largest to its mean magnitude.
Clipping gives up what the paper proves: codes are unbiased with ``clip_sigmas: 0`` alone, and then the mean of many
steps is proved to be synchronous training's, which no single step is; with 2.5 the largest elements of a gradient are
shortened in every step. On one rank nothing is coded, so that its proofs there show plain training.
"""

from __future__ import annotations

from paceline.baselines.collectives import ternary

from paceline import technique
from paceline.families.training.api.replica import Comm, Cost, FlatReplica, Task


@technique(
    name="terngrad",
    family="training",
    implements=("data_parallel",),
    summary="clipped gradients as ternary codes of two bits",
    paper="terngrad",
    properties={"exact": False, "replicas": "identical", "unbiased_with": {"clip_sigmas": 0.0}},
    fidelity={
        "source": {
            "read": "code",
            "paper": "algorithm 1 and section 3.3 by the header, not read for this card",
            "code": "github.com/wenwei202/terngrad: terngrad/inception/bingrad_common.py",
        },
        "deviations": (
            (
                "Codes are those of ``ternary``: layers are runs of 16384 elements, and ranks gather what the "
                "authors' server would add up."
            ),
            (
                "Deviations are taken about zero, and the scale is the largest magnitude that clipping leaves; the "
                "authors' is c deviations about the mean, of the worker that has the largest."
            ),
            (
                "All gradients are coded; the authors leave the last layer's whole unless asked (quantize_logits), "
                "and AlexNet's tensors of fewer than 9217 elements."
            ),
        ),
        "constants": {
            "clip_sigmas": {
                "here": 2.5,
                "authors": "2.5, bingrad_common.py; 0 in run_multi_gpus_googlenet_quick.sh",
                "official": 2.5,
                "source": "github.com/wenwei202/terngrad: terngrad/inception/bingrad_common.py",
            },
            "layer": {
                "here": 16384,
                "authors": "a tensor of the model",
                "official": "a tensor",
                "source": "github.com/wenwei202/terngrad: terngrad/inception/bingrad_common.py",
                "differs": "layers are runs of equal length, since gradients are one vector",
            },
        },
        "checked_by": (
            "tests/unit/test_codecs.py::test_ternary_is_unbiased",
            "tests/conformance/test_training_conformance.py::test_a_technique_conforms",
        ),
    },
)
class TernGrad(FlatReplica):
    """Average ternary gradients."""

    def __init__(self, task: Task, comm: Comm, *, clip_sigmas: float = 2.5, layer: int = 16384) -> None:
        super().__init__(task, comm)
        problem = task.problem("all_reduce", self.flat.values.numel())
        self.ternary = ternary.Ternary(problem, comm, layer=layer, clip_sigmas=clip_sigmas)
        # Draws are state: without them a resumed run would round otherwise and end with other weights.
        self.generators["ternary"] = self.ternary.generator

    def exchange_gradients(self, step: int) -> None:
        """Replace the gradients by the mean of all ranks' ternary ones."""
        self.ternary.run(self.flat.gradients)
        # The collective sums what ranks sent; the mean keeps the expectation equal to the clipped gradient's.
        self.flat.gradients.div_(self.comm.world_size)


def cost(task: Task, *, layer: int) -> Cost:
    """Return the header's formula for all steps."""
    one = ternary.cost(task.problem("all_reduce", task.num_parameters), layer=layer)
    return Cost(
        sent_bytes=task.steps * one.sent_bytes,
        peak_bytes=one.sent_bytes,
        messages=task.steps * one.messages,
    )
