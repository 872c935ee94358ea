"""The trained parameters of a model as one vector, and their gradients as another: what most techniques exchange."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Flat:
    """Moves a model's parameters into one contiguous vector, of which they become views; so do their gradients.

    Parameters that are not trained (``requires_grad`` is off) stay where they are.

    Args:
        model: The model.
        gradients: Whether there are any; techniques that run no backward hold none.

    Attributes:
        parameter: The vector as one parameter, for an optimiser; element-wise optimisers do to it what they would do
            to its pieces.
        bounds: (start, stop) of every trained parameter of the model, in its order.
    """

    def __init__(self, model: nn.Module, *, gradients: bool = True) -> None:
        pieces = [p for p in model.parameters() if p.requires_grad]
        self._shapes = [p.shape for p in pieces]
        count = sum(p.numel() for p in pieces)
        with torch.no_grad():
            values = torch.cat([p.detach().reshape(-1) for p in pieces])
        self.parameter = nn.Parameter(values)
        self.parameter.grad = torch.zeros_like(values) if gradients else None
        self.bounds: list[tuple[int, int]] = []
        start = 0
        for piece in pieces:
            stop = start + piece.numel()
            piece.data = self.parameter.data[start:stop].view(piece.shape)
            if self.parameter.grad is not None:
                # Autograd adds to a gradient in place, so all stay in the vector as long as nobody sets one to None.
                piece.grad = self.parameter.grad[start:stop].view(piece.shape)
            self.bounds.append((start, stop))
            start = stop
        assert start == count

    def pieces(self, vector: Tensor) -> list[Tensor]:
        """Cut a vector like ``values`` into views of the parameters' shapes."""
        cut = zip(self.bounds, self._shapes, strict=True)
        return [vector[start:stop].view(shape) for (start, stop), shape in cut]

    @property
    def values(self) -> Tensor:
        """The parameters, (P,); writing to it changes the model."""
        return self.parameter.data

    @property
    def gradients(self) -> Tensor:
        """The gradients, (P,), filled by ``backward``; they add up until they are cleared."""
        gradients = self.parameter.grad
        assert gradients is not None
        return gradients
