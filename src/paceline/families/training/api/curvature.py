"""Replicas that see what goes into the layers' matrices, and what comes back to them: for methods of curvature."""

from __future__ import annotations

from abc import abstractmethod
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from paceline.families.training.api.matrices import matrices_of
from paceline.families.training.api.replica import Comm, FlatReplica, Task, UnsupportedError

SMALL = 1e-12
"""Added to norms that are divided by."""


class CurvatureReplica(FlatReplica):
    """Looks at the layers' linear maps in every step of ``look_every``, the first among them.

    Subclasses keep what they need of inputs and gradients, and put directions in the gradients' place.

    Attributes:
        shapes: (rows, columns) of the layers' matrices, in the model's order.
    """

    def __init__(self, task: Task, comm: Comm, *, look_every: int) -> None:
        super().__init__(task, comm)
        self.look_every = look_every
        self.numbers = matrices_of(self.model)
        parameters = list(self.model.parameters())
        self.shapes = [(parameters[n].shape[0], parameters[n].shape[1]) for n in self.numbers]
        places = {id(parameters[n]): place for place, n in enumerate(self.numbers)}
        seen: set[int] = set()
        for module in self.model.modules():
            if isinstance(module, nn.Linear) and id(module.weight) in places:
                place = places[id(module.weight)]
                seen.add(place)
                module.register_forward_pre_hook(partial(self._went_in, place))
                module.register_full_backward_hook(partial(self._came_back, place))
        unseen = set(places.values()) - seen
        if unseen:
            name = list(dict(self.model.named_parameters()))[self.numbers[min(unseen)]].removeprefix("inner.")
            raise UnsupportedError(
                f"its curvature is of what goes into nn.Linear and comes back, and {name} is the matrix of none"
            )
        # A tensor, so that a run that is taken up again looks in the same steps.
        self.coming = self.register_state("coming", torch.zeros((), dtype=torch.int64))

    @property
    def looks(self) -> bool:
        """Whether the coming step is one in which the maps are looked at."""
        return int(self.coming) % self.look_every == 0

    def forward_backward(self, sequences_BS: Tensor) -> Tensor:
        """Let the hooks look, and count the step."""
        loss = super().forward_backward(sequences_BS)
        self.coming.add_(1)
        return loss

    def matrices(self, vector: Tensor) -> list[Tensor]:
        """Return the matrices' parts of a vector like the parameters', as views."""
        pieces = self.flat.pieces(vector)
        return [pieces[n] for n in self.numbers]

    def _went_in(self, place: int, _module: nn.Module, inputs: tuple[Any, ...]) -> None:
        if self.looks and torch.is_grad_enabled():
            with torch.no_grad():
                self.see_inputs(place, inputs[0].detach().flatten(0, -2).float())

    def _came_back(self, place: int, _module: nn.Module, _inputs: Any, outputs: tuple[Any, ...]) -> None:
        if self.looks:
            gradients_NO = outputs[0].detach().flatten(0, -2).float()
            # Backward's are of the mean over all positions; methods of curvature want each position's own.
            self.see_gradients(place, gradients_NO * len(gradients_NO))

    @abstractmethod
    def see_inputs(self, place: int, inputs_NI: Tensor) -> None:
        """Keep what is needed of the inputs of a matrix, one row a position."""

    @abstractmethod
    def see_gradients(self, place: int, gradients_NO: Tensor) -> None:
        """Keep what is needed of the gradients of a matrix's outputs, each of its own position's loss."""


def as_long_as(direction: Tensor, gradient: Tensor) -> Tensor:
    """Return a direction with a gradient's norm."""
    scaled: Tensor = direction * (gradient.norm() / (direction.norm() + SMALL))
    return scaled
