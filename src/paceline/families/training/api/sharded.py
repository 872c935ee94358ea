"""Models whose parameters exist in whole only while they are used: what techniques like stage 3 of ZeRO share.

A unit is a layer, or the rest of the model. Its parameters are views of one vector whose storage is freed and filled
again: what autograd has saved of them sees the new contents, and nothing keeps the old memory alive.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from paceline.families.collectives.api.problem import chunk_bounds
from paceline.families.training.api.masters import SINGLE, Masters, narrow_parameters
from paceline.families.training.api.model import loss_and_gradients
from paceline.families.training.api.own import layers_of
from paceline.families.training.api.replica import Comm, Replica, Share, Task


class Unit:
    """Some parameters, of which this rank owns one share.

    Args:
        parameters: The unit's.
        rank: This one.
        bounds: (start, stop) of each rank's share of their elements, which together are all.
        kept: (start, stop) of what stays here between uses, this rank's share among it; default: that alone.

    Attributes:
        share: This rank's elements, an optimiser's parameter with a gradient of its own.
        kept: What stays here, of which the share is a view.
    """

    def __init__(
        self,
        parameters: list[nn.Parameter],
        rank: int,
        bounds: list[tuple[int, int]],
        kept: tuple[int, int] | None = None,
    ) -> None:
        self.parameters = parameters
        self.rank = rank
        self.count = sum(p.numel() for p in parameters)
        self.bounds = bounds
        with torch.no_grad():
            self._whole = torch.cat([p.detach().reshape(-1) for p in parameters])
        self._nbytes = self._whole.untyped_storage().nbytes()
        start, stop = self.bounds[rank]
        first, last = kept or (start, stop)
        # A copy, since the whole vector's storage is freed; the only memory of these elements between uses.
        self.kept = self._whole[first:last].clone()
        self.share = nn.Parameter(self.kept[start - first : stop - first])
        self.share.grad = torch.zeros_like(self.share)
        self.missing = 0
        """Gradients that backward has yet to complete."""
        at = 0
        for parameter in parameters:
            parameter.data = self._whole[at : at + parameter.numel()].view(parameter.shape)
            at += parameter.numel()
        self.free()

    @property
    def is_whole(self) -> bool:
        """Whether the parameters hold their values now."""
        return self._whole.untyped_storage().nbytes() > 0

    def room(self, bounds: Sequence[tuple[int, int]]) -> list[Tensor]:
        """Make room for all parameters and return parts of it; what they hold is not theirs yet."""
        # The same storage object: views that autograd saved in forward are valid again.
        self._whole.untyped_storage().resize_(self._nbytes)
        return [self._whole.data[start:stop] for start, stop in bounds]

    def allocate(self) -> list[Tensor]:
        """Make room for all parameters and return it in shares, of which this rank's is filled."""
        chunks = self.room(self.bounds)
        # Narrow and wide states alike: the share is what the last step rounded its master to.
        chunks[self.rank].copy_(self.share.detach())
        return chunks

    def free(self) -> None:
        """Give the room back; the parameters hold nothing until they are gathered again."""
        self._whole.untyped_storage().resize_(0)

    def pieces(self) -> Iterator[tuple[nn.Parameter, int, Tensor]]:
        """Yield the parameters that this rank's share touches, with the first element in each and the elements."""
        begin, end = self.bounds[self.rank]
        at = 0
        for parameter in self.parameters:
            start, stop = max(at, begin), min(at + parameter.numel(), end)
            if start < stop:
                yield parameter, start - at, self.share.detach()[start - begin : stop - begin]
            at += parameter.numel()

    def take_gradients(self, bounds: Sequence[tuple[int, int]] | None = None) -> list[Tensor]:
        """Return the gradients in shares or other parts, contiguous, and free those of the parameters."""
        found = []
        for parameter in self.parameters:
            assert parameter.grad is not None
            found.append(parameter.grad.reshape(-1))
            parameter.grad = None
        # Contiguous by bounds, which cross tensors: a share is a run of the unit and not of a parameter.
        whole = torch.cat(found)
        return [whole[start:stop] for start, stop in bounds or self.bounds]


def unit_groups(model: nn.Module) -> Iterator[tuple[nn.Module, list[nn.Parameter]]]:
    """Yield each layer with its parameters, then the model with the rest."""
    taken: set[int] = set()
    for layer in layers_of(model):
        parameters = list(layer.parameters())
        taken.update(map(id, parameters))
        yield layer, parameters
    # Last: embedding and last norm, used at both ends of the model, stay whole from forward to backward.
    yield model, [p for p in model.parameters() if id(p) not in taken]


def unit_sizes(model: nn.Module) -> list[int]:
    """Return the number of parameters of each unit, the rest of the model last."""
    return [sum(p.numel() for p in parameters) for _, parameters in unit_groups(model)]


def largest_share(sizes: Sequence[int], world_size: int) -> int:
    """Return the elements that the rank which owns most has of some vectors, each cut into a share for every rank."""
    owned = [0] * world_size
    for size in sizes:
        for rank, (start, stop) in enumerate(chunk_bounds(size, world_size)):
            owned[rank] += stop - start
    return max(owned)


class ShardedReplica(Replica):
    """Gathers units before they are used, and keeps this rank's share of their gradients after.

    A layer is gathered before its forward and freed after, gathered again before its backward, and freed with its
    gradients when they are complete. The rest is gathered once and stays until its gradients are complete. Techniques
    say how units are gathered and gradients scattered.

    Args:
        task: What is trained.
        comm: The communicator.
        state: See ``masters``.
        reshard: Whether layers are freed after forward; otherwise they stay until their gradients are complete.
    """

    own_gradients = False

    def __init__(self, task: Task, comm: Comm, state: str = SINGLE, *, reshard: bool = True) -> None:
        narrow_parameters(task, state)
        groups = list(unit_groups(task.model))
        self.units = [
            Unit(parameters, task.rank, *self.bounds(sum(p.numel() for p in parameters), task.world_size))
            for _, parameters in groups
        ]
        super().__init__(task, comm)
        for (module, _), unit in zip(groups, self.units, strict=True):
            # The model's own unit is not freed after forward: its backward begins at once, with the tied head.
            self._watch(module, unit, frees=reshard and module is not task.model)

    def bounds(self, count: int, world_size: int) -> tuple[list[tuple[int, int]], tuple[int, int] | None]:
        """Return of a unit's elements what ``Unit`` wants to know: each rank's share, and what stays here."""
        return chunk_bounds(count, world_size), None

    @abstractmethod
    def gather(self, unit: Unit) -> None:
        """Make a unit whole that is not."""

    @abstractmethod
    def scatter(self, unit: Unit) -> Tensor:
        """Take a unit's gradients and return the sum over ranks of this rank's share of them."""

    def make_optimizer(self) -> Optimizer:
        """Return the point's optimiser over this rank's shares, or their masters."""
        self.masters = Masters(self, [unit.share for unit in self.units])
        return self.task.optimizer(self.masters.parameters)

    def forward_backward(self, sequences_BS: Tensor) -> Tensor:
        """Run forward and backward; units come and go meanwhile."""
        for unit in self.units:
            unit.missing = len(unit.parameters)
        return loss_and_gradients(self.model, sequences_BS)

    def update(self, step: int) -> None:
        """Apply the gradients of this rank's shares."""
        self.masters.step(self.optimizer)

    def shares(self) -> list[Share]:
        """Return this rank's shares."""
        number = {id(p): i for i, p in enumerate(self.model.parameters())}
        return [(number[id(p)], start, values) for unit in self.units for p, start, values in unit.pieces()]

    def state_dict(self) -> dict[str, Any]:
        """Return this rank's shares and the optimiser's state of them."""
        return {
            "shares": [unit.share.detach().clone() for unit in self.units],
            "kept": {name: tensor.clone() for name, tensor in self.kept.items()},
            "optimizer": self.optimizer.state_dict(),
            "generators": {name: g.get_state() for name, g in self.generators.items()},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up what ``state_dict`` returned, on the same rank of as many.

        Raises:
            ValueError: The state is another technique's, model's or number of ranks'.
        """
        if [s.shape for s in state.get("shares", ())] != [unit.share.shape for unit in self.units]:
            raise ValueError("the checkpoint does not fit this technique, model and number of ranks")
        with torch.no_grad():
            for unit, share in zip(self.units, state["shares"], strict=True):
                unit.share.copy_(share)
            for name, tensor in state["kept"].items():
                self.kept[name].copy_(tensor)
        for name, generator in state["generators"].items():
            self.generators[name].set_state(generator)
        self.optimizer.load_state_dict(state["optimizer"])

    def _watch(self, module: nn.Module, unit: Unit, *, frees: bool) -> None:
        module.register_forward_pre_hook(lambda *_: self._use(unit))
        if frees:
            # All ranks run the layers in one order, so gathers meet: nobody waits for what others do not send.
            module.register_forward_hook(lambda *_: unit.free())
            # Before the first of the layer's gradients: autograd reads its weights to get the inputs' gradient.
            module.register_full_backward_pre_hook(lambda *_: self._use(unit))
        for parameter in unit.parameters:
            parameter.register_post_accumulate_grad_hook(  # type: ignore[no-untyped-call]  # torch leaves it without types
                partial(_completed, self, unit)
            )

    def _use(self, unit: Unit) -> None:
        # A unit may be whole already: with reshard off, a forward without a backward leaves it so.
        if not unit.is_whole:
            self.gather(unit)

    def _ready(self, unit: Unit) -> None:
        """Count a gradient down; with the last one keep the mean of this rank's share and free the unit."""
        unit.missing -= 1
        if unit.missing:
            return
        assert unit.share.grad is not None
        torch.div(self.scatter(unit), self.comm.world_size, out=unit.share.grad)
        # The last gradient says that backward is through with the unit's weights.
        unit.free()


def _completed(replica: ShardedReplica, unit: Unit, parameter: Tensor) -> None:
    replica._ready(unit)
