"""Shift parallelism: many tokens are computed in sequence parallelism, few in tensor parallelism, over one cache.

Hidayetoglu, Qiao, Wyatt, Rasley, He and Rajbhandari, 2025, "Shift Parallelism: Low-Latency, High-Throughput LLM
Inference for Dynamic Workloads" (arXiv:2509.16495).

Algorithm: sequence parallelism after Ulysses (with tensor parallelism of T inside) and tensor parallelism of all P
ranks have the same heads of keys on each rank, so that a step of either goes on where a step of the other has ended. A
step with fewer tokens than a threshold is computed by all ranks together, a longer one with its tokens dealt out.
Cost: switching moves nothing. Beside 1/T of the weights, which sequence parallelism needs, a rank has the 1/P that
tensor parallelism needs: T/P more.
Limits: heads as in tensor parallelism of P ranks.
"""

from __future__ import annotations

from collections.abc import Sequence

from paceline.baselines.serving.tensor_parallel import TensorParallel
from paceline.baselines.serving.ulysses_inference import UlyssesInference

from paceline import technique
from paceline.families.serving.api.distributing import Batch, Comm, Left, Piece, Setting, StepCosts

SEQUENCE, TENSOR = 0, 1


@technique(
    name="shift-parallelism",
    family="serving",
    implements=("distribute",),
    paper="shift-parallelism",
    summary="sequence parallelism for steps of many tokens and tensor parallelism for those of few, over one cache",
    fidelity={
        "source": {
            "read": "code",
            "paper": "the abstract's method by the ledger, not read for this card",
            "code": (
                "github.com/snowflakedb/ArcticInference: arctic_inference/vllm/args.py, "
                "arctic_inference/vllm/shift_parallel.py, and the comparison in "
                "arctic_inference/vllm/model_runner.py"
            ),
        },
        "deviations": (
            (
                "Without a threshold, what a step costs in both modes decides; the authors compare a step's "
                "scheduled tokens with one fixed number."
            ),
            "Steps of prompts and decodes are priced by tables of this engine.",
        ),
        "constants": {
            "tensor": {"here": 1, "authors": "set by the user"},
            "threshold": {
                "here": 0,
                "authors": "512 (shift_parallel_threshold), args.py",
                "official": 512,
                "source": "github.com/snowflakedb/ArcticInference: arctic_inference/vllm/args.py",
                "differs": "without a threshold, what a step costs in both modes decides",
            },
        },
        "checked_by": (
            "tests/unit/test_sharing.py::test_prompts_and_decodes_are_priced_apart",
            "tests/unit/test_sharing.py::test_states_are_those_of_a_plain_computation_and_no_key_moves",
        ),
    },
)
class ShiftParallelism:
    """Two modes over one cache.

    Args:
        setting: Of the rank.
        comm: The communicator.
        tensor: Shares of the weights in sequence parallelism, T.
        threshold: Tokens up to which a step is computed in tensor parallelism; 0: as costs say.
    """

    modes = ("sequence", "tensor")

    def __init__(self, setting: Setting, comm: Comm, *, tensor: int = 1, threshold: int = 0) -> None:
        # Both take their weights, since a switch must not load any. Both write the heads of keys of rank r in a P-way
        # split, so either can read the other's cache.
        self._modes = (UlyssesInference(setting, comm, tensor=tensor), TensorParallel(setting, comm))
        self._threshold = threshold
        self._costs: tuple[StepCosts, ...] = ()

    def step(self, batch: Batch, mode: int) -> Left:
        """Compute a step in one of the modes."""
        left: Left = self._modes[mode].step(batch, 0)
        return left

    def learn(self, costs: Sequence[StepCosts]) -> None:
        """Keep what steps cost in both modes, unless a threshold is given."""
        self._costs = () if self._threshold else tuple(costs)

    def choose(self, pieces: Sequence[Piece]) -> int:
        """Take the cheaper mode of a step, or compare all of its scheduled tokens with the threshold."""
        # A function of the step alone: ranks that chose differently would wait for each other's messages for ever.
        if self._costs:
            sequence, tensor = (table.seconds(pieces, 0) for table in self._costs)
            # Equal costs: fewer bytes between ranks.
            return SEQUENCE if sequence <= tensor else TENSOR
        return SEQUENCE if sum(count for _, count, _ in pieces) > self._threshold else TENSOR
