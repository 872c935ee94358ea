"""Tutel: one layout of weights and tokens under which every parallelism of experts works, chosen anew in each step.

Hwang et al., "Tutel: Adaptive Mixture-of-Experts at Scale" (MLSys 2023), on adaptive parallelism switching and on fast
encode and decode.

Algorithm (n ranks in groups of s; a group has E·s/n experts, a rank of it F/s of each one's hidden width):
1. Encode copies tokens into the slots of their experts by index, and decode gathers them: k·T rows, no product.
2. ``expert``: slots go to one rank of their expert's group, which gathers the group's parts of the weights.
   ``model``: slots go to all ranks of the group; each computes with its part, and what comes back adds up.
   ``data``: every rank gathers all weights and keeps its tokens.
3. ``adaptive`` chooses in every step the strategy that would send the fewest bytes. ``measured`` takes each in turn
   for a step, twice over, and then stays with the one whose faster step, on the rank that took longest, was fastest;
   ranks agree on that once, in 4·(n − 1) bytes for each strategy. Weights, their gradients and the optimiser's state
   stay where they are: only what is gathered for a step, or where tokens go, is different.

Cost of a layer with B = E·G·C rows of 4·d bytes and W = 8·E·F·d bytes of weights, forward and backward:
``expert`` 4·B·(n − s)/n + 2·(s − 1)·W/n, ``model`` 4·B·(n − 1)·s/n, ``data`` 2·(n − 1)·W/n. With s = 1 the first two
are one. Memory: W/n of weights and state; gathered weights stay until backward.
Limits: groups of one size with as many experts each; ``measured`` does not pass ``proof: all``, which asks two runs for
equal bits.
"""

from __future__ import annotations

import math
import time
from typing import Any

import torch
from torch import Tensor

from paceline import technique
from paceline.families.training.api.expert.exchange import all_gather, all_to_all
from paceline.families.training.api.expert.replica import (
    ExpertReplica,
    Shape,
    expert_cost,
    perceptrons,
    shape_of,
)
from paceline.families.training.api.expert.routing import Routing
from paceline.families.training.api.replica import Comm, Cost, Task, UnsupportedError

STRATEGIES = ("expert", "data", "model")
TRIALS = 2
"""Steps for which ``measured`` tries each strategy; the first one of a process is often slow."""


@technique(
    name="tutel",
    family="training",
    implements=("expert_parallel",),
    summary="one layout for expert, data and model parallelism, chosen in every step; sparse encode and decode",
    paper="tutel",
    properties={"exact": True, "replicas": "identical"},
    fidelity={
        "source": {
            "read": "code",
            "paper": "adaptive parallelism by the header, not read for this card",
            "code": "github.com/microsoft/tutel: tutel/impls/moe_layer.py, README.md",
        },
        "deviations": (
            (
                "The fastest strategy is measured for one capacity and kept; the paper remembers one for each "
                "range of capacities."
            ),
            (
                "By default the closed form decides, for two runs must give the same bits; the authors' ``auto`` "
                "weighs tokens against weights likewise, between two strategies."
            ),
            "Pipelining, the hierarchical all-to-all and kernels for GPUs are left out.",
            "Groups are an option, with one size for all; 0 is the fewest ranks that an expert needs.",
        ),
        "constants": {
            "strategy": {
                "here": "adaptive",
                "authors": "adaptive:1 (parallel_type), moe_layer.py",
                "official": "adaptive:1",
                "source": "github.com/microsoft/tutel: tutel/impls/moe_layer.py",
                "differs": "the closed form decides, and not a degree that is set",
            },
            "slices": {
                "here": 0,
                "authors": "world size over experts (sharded_count), moe_layer.py",
                "official": "world_size // num_global_experts",
                "source": "github.com/microsoft/tutel: tutel/impls/moe_layer.py",
                "differs": "0 stands for that, the fewest ranks that an expert needs",
            },
            "TRIALS": {"here": 2, "authors": "not public"},
        },
        "checked_by": (
            "tests/unit/test_experts.py::test_gradients_and_bytes_are_those_of_one_process_and_of_the_formula",
            "tests/unit/test_experts.py::test_tutel_chooses_what_sends_least",
        ),
    },
)
class Tutel(ExpertReplica):
    """Chooses a strategy in every step.

    Args:
        task: The rank's task.
        comm: The communicator.
        strategy: ``adaptive`` (by bytes), ``measured`` (by time), ``cycle`` (each in turn), or always one of them.
        slices: Ranks among which an expert is divided; 0: as few as it needs.
    """

    def __init__(self, task: Task, comm: Comm, *, strategy: str = "adaptive", slices: int = 0) -> None:
        if strategy not in ("adaptive", "measured", "cycle", *STRATEGIES):
            raise UnsupportedError(f"there is no strategy '{strategy}'")
        super().__init__(task, comm, slices or num_slices(shape_of(task)))
        self.asked, self.now = strategy, ""
        self.step = self.register_state("step", torch.zeros((), dtype=torch.int64))
        self.tried = STRATEGIES if self.slices > 1 else STRATEGIES[:2]
        """Strategies that differ: in groups of one rank ``model`` is ``expert``."""
        self.best_s = self.register_state(
            "best_s", torch.full((len(self.tried),), math.inf, device=task.device)
        )
        self._began_s = 0.0
        row = range(self.group * self.slices, (self.group + 1) * self.slices)
        self.row = list(row)
        """Ranks of this one's group."""
        self.column = list(range(self.slice, task.world_size, self.slices))
        """Ranks with the same part of every group's experts."""
        self._found: tuple[Routing, tuple[Tensor, Tensor]] | None = None

    def begin_step(self) -> None:
        """Choose."""
        step = int(self.step)
        if self.asked == "measured":
            self.now = self._fastest(step)
            self._began_s = self._clock()
        else:
            self.now = choice(self.asked, step, self.shape, self.slices)
        self.step += 1

    def end_passes(self) -> None:
        """Note how long a strategy took that is being tried."""
        step = int(self.step) - 1
        if self.asked == "measured" and step < TRIALS * len(self.tried):
            place = step % len(self.tried)
            # The best of the trials: a first step may pay for allocations, which say nothing of the strategy.
            self.best_s[place] = min(float(self.best_s[place]), self._clock() - self._began_s)

    def _fastest(self, step: int) -> str:
        """Return what is tried in a step, or what was fastest when all was tried."""
        trials = TRIALS * len(self.tried)
        if step < trials:
            return self.tried[step % len(self.tried)]
        # The maximum over ranks, exchanged once: a step lasts as long as its slowest rank, and ranks that chose from
        # their own times could choose differently and wait for each other for ever.
        if step == trials:
            self.best_s.copy_(all_gather(self.comm, self.best_s).amax(dim=0))
        return self.tried[int(self.best_s.argmin())]

    def _clock(self) -> float:
        """Return the seconds after which what was issued to the device is done."""
        if self.task.device.type != "cpu":
            torch.accelerator.synchronize()
        return time.perf_counter()

    def encode(self, h_GTD: Tensor, routing: Routing) -> Tensor:
        """Copy tokens into their slots."""
        found: Tensor = _apply(_Encode, h_GTD, *self._places(routing), routing)
        return found

    def decode(self, slots_EGCD: Tensor, routing: Routing) -> Tensor:
        """Gather what experts made of every token, and weigh it."""
        found: Tensor = _apply(
            _Decode, slots_EGCD, routing.weights_GTk, *self._places(routing), routing.kept_GTk
        )
        return found

    def _places(self, routing: Routing) -> tuple[Tensor, Tensor]:
        """Return a routing's indices, which encode and decode share."""
        # By identity: encode and decode of one layer are given the same routing object.
        if self._found is None or self._found[0] is not routing:
            self._found = routing, _indices(routing)
        return self._found[1]

    def run_experts(self, layer: int, slots_EGCD: Tensor) -> Tensor:
        """Let the experts work on the slots, in the way that was chosen."""
        up_efD, down_efD = self.up_efD[layer], self.down_efD[layer]
        rows_END = slots_EGCD.flatten(1, 2)
        if self.now == "data":
            up_EFD, down_EFD = self._gathered(up_efD, down_efD, range(self.comm.world_size))
            return perceptrons(rows_END, up_EFD, down_EFD).view(slots_EGCD.shape)
        parts_qeND = rows_END.view(self.num_groups, self.num_own, *rows_END.shape[1:])
        if self.now == "expert":
            up_eFD, down_eFD = self._gathered(up_efD, down_efD, self.row)
            return self._there_and_back(parts_qeND, up_eFD, down_eFD, self.column).view(slots_EGCD.shape)
        ranks = range(self.comm.world_size)
        # Each rank of a group gets the group's slots and applies its f columns: the down product is a sum over F.
        to_all_neND = parts_qeND.repeat_interleave(self.slices, dim=0)
        made_neND = self._there_and_back(to_all_neND, up_efD, down_efD, ranks)
        made_qseND = made_neND.view(self.num_groups, self.slices, *made_neND.shape[1:])
        return made_qseND.sum(dim=1).view(slots_EGCD.shape)

    def _there_and_back(self, parts_neND: Tensor, up_efD: Tensor, down_efD: Tensor, members: Any) -> Tensor:
        """Send part i to member i, let this rank's experts work on what arrives, and send it back."""
        there_neND = all_to_all(self.comm, parts_neND, members)
        rows_eMD = there_neND.transpose(0, 1).flatten(1, 2)
        made_eMD = perceptrons(rows_eMD, up_efD, down_efD)
        back_enND = made_eMD.view(self.num_own, len(members), -1, made_eMD.shape[-1])
        return all_to_all(self.comm, back_enND.transpose(0, 1), members)

    def _gathered(self, up_efD: Tensor, down_efD: Tensor, members: Any) -> tuple[Tensor, Tensor]:
        """Return the weights of all experts that the members hold, with their whole hidden widths."""
        if len(members) == 1:
            return up_efD, down_efD
        parts_n2efD = all_gather(self.comm, torch.stack([up_efD, down_efD]), members)
        parts_qs2efD = parts_n2efD.view(-1, self.slices, *parts_n2efD.shape[1:])
        # (q, s, 2, e, f, D) to (2, q·e, s·f, D): groups in the experts' order, slices in the hidden width's.
        up_EFD, down_EFD = parts_qs2efD.permute(2, 0, 3, 1, 4, 5).flatten(1, 2).flatten(2, 3)
        return up_EFD, down_EFD


def num_slices(shape: Shape) -> int:
    """Return among how few ranks an expert must be divided for every rank to have a part of one."""
    return max(1, shape.ranks // shape.experts)


def sent(strategy: str, shape: Shape, slices: int) -> tuple[int, int]:
    """Return the bytes and messages that a rank sends for a layer in a step."""
    n, tokens, weights = shape.ranks, shape.buffer_bytes, shape.weight_bytes
    if strategy == "expert":
        groups = n // slices
        # Four all-to-alls of slots; of weights an all-gather forward and its reduce-scatter backward.
        own_bytes = 4 * tokens * (groups - 1) // groups + 2 * (slices - 1) * weights // n
        return own_bytes, 4 * (groups - 1) + 2 * (slices - 1)
    if strategy == "model":
        return 4 * tokens * slices * (n - 1) // n, 4 * (n - 1)
    return 2 * (n - 1) * weights // n, 2 * (n - 1)


def choice(asked: str, step: int, shape: Shape, slices: int) -> str:
    """Return the strategy of a step."""
    if asked == "cycle":
        return STRATEGIES[step % len(STRATEGIES)]
    if asked == "adaptive":
        # By bytes: every rank finds the same without a message. Ties go to the first of STRATEGIES.
        return min(STRATEGIES, key=lambda strategy: sent(strategy, shape, slices)[0])
    return asked


def cost(task: Task, *, strategy: str, slices: int) -> Cost | None:
    """Return the header's formula, for the strategies of all steps; None where times decide on them."""
    if strategy == "measured":
        return None
    groups_of = slices or num_slices(shape_of(task))

    def of_layer(shape: Shape, step: int) -> tuple[int, int]:
        return sent(choice(strategy, step, shape, groups_of), shape, groups_of)

    return expert_cost(task, of_layer)


def _indices(routing: Routing) -> tuple[Tensor, Tensor]:
    """Return the slot of every choice and the token of every slot, by their places in flat order; −1 for none."""
    num_sequences, length, top_k = routing.experts_GTk.shape
    sequence_G11 = torch.arange(num_sequences, device=routing.kept_GTk.device)[:, None, None]
    slot_GTk = (routing.experts_GTk * num_sequences + sequence_G11) * routing.capacity + routing.places_GTk
    token_GTk = torch.arange(num_sequences * length, device=slot_GTk.device).view(num_sequences, length, 1)
    token_S = slot_GTk.new_full((routing.num_experts * num_sequences * routing.capacity,), -1)
    # Dropped choices are left out here: their slot numbers run past their expert's queue into the next one's.
    token_S[slot_GTk[routing.kept_GTk]] = token_GTk.expand(-1, -1, top_k)[routing.kept_GTk]
    return slot_GTk, token_S


def _apply(function: Any, *arguments: Any) -> Any:
    return function.apply(*arguments)


def _rows(source_ND: Tensor, index_M: Tensor, wanted_M: Tensor) -> Tensor:
    """Return rows by index, and zeros where none is wanted."""
    # The clamp makes −1 and dropped slots readable; what was read there is multiplied by zero.
    return source_ND.index_select(0, index_M.clamp(0, len(source_ND) - 1)).mul_(wanted_M[:, None])


class _Encode(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, h_GTD: Tensor, slot_GTk: Tensor, token_S: Tensor, routing: Routing) -> Tensor:
        ctx.save_for_backward(slot_GTk, routing.kept_GTk)
        ctx.shape = h_GTD.shape
        # A slot holds at most one token, so both directions are gathers, without atomic adds.
        slots_SD = _rows(h_GTD.reshape(-1, h_GTD.shape[-1]), token_S, token_S >= 0)
        return slots_SD.view(routing.num_experts, len(h_GTD), routing.capacity, -1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        slot_GTk, kept_GTk = ctx.saved_tensors
        flat_SD = gradients[0].reshape(-1, ctx.shape[-1])
        found = _rows(flat_SD, slot_GTk.reshape(-1), kept_GTk.reshape(-1))
        # A token's gradient is the sum over its k copies.
        return found.view(*slot_GTk.shape, -1).sum(dim=2), None, None, None


class _Decode(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, slots_EGCD: Tensor, weights_GTk: Tensor, slot_GTk: Tensor, token_S: Tensor, kept_GTk: Tensor
    ) -> Tensor:
        flat_SD = slots_EGCD.reshape(-1, slots_EGCD.shape[-1])
        made_GTkD = _rows(flat_SD, slot_GTk.reshape(-1), kept_GTk.reshape(-1)).view(*slot_GTk.shape, -1)
        # made_GTkD is kept for the gate: a weight's gradient is that of the output times what it weighs.
        ctx.save_for_backward(made_GTkD, weights_GTk, slot_GTk, token_S, kept_GTk)
        ctx.shape = slots_EGCD.shape
        return torch.einsum("gtk,gtkd->gtd", weights_GTk, made_GTkD)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        made_GTkD, weights_GTk, slot_GTk, token_S, kept_GTk = ctx.saved_tensors
        (g_GTD,) = gradients
        g_weights_GTk = torch.einsum("gtd,gtkd->gtk", g_GTD, made_GTkD)
        # Slots nobody took keep weight zero, so their experts' rows get no gradient.
        weight_S = weights_GTk.new_zeros(token_S.shape)
        weight_S[slot_GTk[kept_GTk]] = weights_GTk[kept_GTk]
        g_slots_SD = _rows(g_GTD.reshape(-1, g_GTD.shape[-1]), token_S, weight_S)
        return g_slots_SD.view(ctx.shape), g_weights_GTk, None, None, None
