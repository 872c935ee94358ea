"""QSDP: stage 3 of ZeRO with coded weights and coded gradients on the wire, whole ones only where they are owned.

Markov et al., "Quantized Distributed Training of Large Models with Convergence Guarantees" (ICML 2023). Written from
the paper's abstract and the ledger's summary: sections could not be looked up.

Algorithm (units in n shares, as in ``zero-3``):
1. The owner of a share codes it in w bits; all ranks, the owner as well, compute with the decoded values.
2. Gradients of share r are coded in g bits and sent to rank r, which decodes them and adds them up in float32.
3. Rank r updates its exact share.
A block of 1024 elements has a smallest and a largest value and 2^bits uniform levels between them. Gradients are
rounded at random, without bias; weights to the nearest level.

Cost of a step: (n − 1)/n · P · (2·w + g)/8 bytes for layers and (w + g)/8 for the rest, and 8 bytes a block; a quarter
of float32 with w = g = 8. Messages: 3·(n − 1) for each layer, 2·(n − 1) for the rest.
Limits: what is shipped are the exact shares, with which no step has computed.
"""

from __future__ import annotations

import torch
from torch import Tensor

from paceline import technique
from paceline.families.collectives.api.problem import chunk_bounds
from paceline.families.training.api.codecs import decode_levels, encode_levels, level_bytes
from paceline.families.training.api.replica import Comm, Cost, Task, UnsupportedError
from paceline.families.training.api.sharded import ShardedReplica, Unit, largest_share, unit_sizes


@technique(
    name="qsdp",
    family="training",
    implements=("data_parallel",),
    summary="ZeRO 3 with weights and gradients in eight bits or fewer on the wire",
    paper="qsdp",
    properties={
        "exact": False,
        "replicas": "identical",
        "equals_ddp": {"optimizer": "sgd", "arguments": {"weight_bits": 32, "gradient_bits": 32}},
        "unbiased_with": {"weight_bits": 32, "unbiased": True},
    },
    fidelity={
        "source": {
            "read": "paper",
            "paper": "the abstract, read for this card",
            "code": "none found (github.com/IST-DASLab/QSDP is named elsewhere and could not be read)",
        },
        "deviations": (
            (
                "The paper shifts the grid of weights at random, and can learn its levels; here they are uniform "
                "and stay."
            ),
            "Codes fill bytes, with 1, 2, 4 or 8 bits: six bits for weights cannot be had.",
            "Gains of norms are coded with their layer.",
            (
                "The sum of a scatter takes n − 1 messages to n − 1 ranks, since codes cannot be added up on a "
                "ring's way."
            ),
            "Bits of 32, which no suite sets, send values as they are, so that the algebra is seen.",
        ),
        "constants": {
            "weight_bits": {"here": 8, "authors": "8 by the ledger"},
            "gradient_bits": {"here": 8, "authors": "8 by the ledger"},
            "unbiased": {"here": True, "authors": "unbiased, by the abstract's guarantees"},
        },
        "checked_by": (
            "tests/unit/test_training.py::test_levels_drawn_at_random_have_the_values_as_their_mean",
            "tests/unit/test_training.py::test_levels_are_at_most_half_a_step_away_and_ends_are_exact",
            "tests/conformance/test_training_conformance.py::test_a_technique_conforms",
        ),
    },
)
class Qsdp(ShardedReplica):
    """Gather and scatter codes."""

    def __init__(
        self,
        task: Task,
        comm: Comm,
        *,
        weight_bits: int = 8,
        gradient_bits: int = 8,
        unbiased: bool = True,
    ) -> None:
        if not {weight_bits, gradient_bits} <= {1, 2, 4, 8, 32}:
            what = "1, 2, 4 or 8 bits (32: values as they are)"
            raise UnsupportedError(f"codes have {what}, and not {weight_bits} and {gradient_bits}")
        super().__init__(task, comm)
        self.weight_bits, self.gradient_bits, self.unbiased = weight_bits, gradient_bits, unbiased
        # Another seed on every rank: errors must be independent, or the mean would not shrink them.
        generator = torch.Generator(device=task.device).manual_seed(task.seed + 1 + task.rank)
        # Registered for checkpoints: a resumed run draws on where the saved one stopped, and so has the same bits.
        self.generators["rounding"] = generator

    def gather(self, unit: Unit) -> None:
        """Make a unit whole, from codes alone."""
        chunks, bits = unit.allocate(), self.weight_bits
        messages = [self._message(len(chunk), bits) for chunk in chunks]
        # No generator: a layer is gathered twice a step, and backward must decode the values that forward has used.
        encode_levels(unit.share.detach(), messages[self.comm.rank], bits)
        self._exchange([messages[self.comm.rank]] * self.comm.world_size, messages)
        # The own share is replaced by its code as well, or each rank would compute with another model.
        for chunk, message in zip(chunks, messages, strict=True):
            chunk.copy_(decode_levels(message, len(chunk), bits))

    def scatter(self, unit: Unit) -> Tensor:
        """Return the sum of decoded gradients of this rank's share."""
        chunks, bits = unit.take_gradients(), self.gradient_bits
        generator = self.generators["rounding"] if self.unbiased else None
        outgoing = [self._message(len(chunk), bits) for chunk in chunks]
        for chunk, message in zip(chunks, outgoing, strict=True):
            encode_levels(chunk, message, bits, generator=generator)
        own = chunks[self.comm.rank]
        incoming = [self._message(len(own), bits) for _ in chunks]
        # The own contribution is rounded like the others': the mean treats all ranks alike.
        incoming[self.comm.rank].copy_(outgoing[self.comm.rank])
        self._exchange(outgoing, incoming)
        # float32 sum in rank order, which is one order whatever arrives first: two runs have the same bits.
        own.zero_()
        for message in incoming:
            own.add_(decode_levels(message, len(own), bits))
        return own

    def _message(self, count: int, bits: int) -> Tensor:
        return torch.empty(level_bytes(count, bits), dtype=torch.uint8, device=self.task.device)

    def _exchange(self, outgoing: list[Tensor], incoming: list[Tensor]) -> None:
        """Send every other rank its message, and receive one from each."""
        rank, size = self.comm.rank, self.comm.world_size
        others = [(rank + shift) % size for shift in range(1, size)]
        self.comm.start(
            sends=[(outgoing[peer], peer) for peer in others],
            receives=[(incoming[peer], peer) for peer in others],
        ).wait()


def cost(task: Task, *, weight_bits: int, gradient_bits: int) -> Cost:
    """Return the header's formula, with the exact sizes of shares and blocks."""
    n = task.world_size
    busiest, sizes = 0, unit_sizes(task.model)
    for rank in range(n):
        sent = 0
        for number, size in enumerate(sizes):
            shares = [stop - start for start, stop in chunk_bounds(size, n)]
            # The rest (embedding, last norm) stays whole from forward to backward; layers are gathered twice.
            times = 1 if number == len(sizes) - 1 else 2
            sent += times * (n - 1) * level_bytes(shares[rank], weight_bits)
            sent += sum(level_bytes(s, gradient_bits) for i, s in enumerate(shares) if i != rank)
        busiest = max(busiest, sent)
    messages = (n - 1) * (3 * len(sizes) - 1)
    return Cost(
        sent_bytes=task.steps * busiest,
        peak_bytes=busiest,
        messages=task.steps * messages,
        state_bytes=(8 + task.moment_bytes) * largest_share(sizes, n),
        scratch_bytes=0,
    )
