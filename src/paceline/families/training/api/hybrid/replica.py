"""A rank of a mesh: it follows a pipeline's schedule with its part of the matrices, on its copy's part of a step.

Every rank reads the whole batch, as in pipelines; a copy of the model works through every d-th of its sequences. Tied
embedding: as in the executor. Norms and the embedding lie in whole on all ranks that share matrices; their gradients
there have equal bits, since all that ranks exchange comes back from one sum.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from paceline.base.counting import number_of
from paceline.families.collectives.api import rings
from paceline.families.collectives.api.problem import chunk_bounds
from paceline.families.training.api.hybrid.matrices import Cut, Group, cuts, laid_out
from paceline.families.training.api.hybrid.mesh import Mesh
from paceline.families.training.api.model import Layer
from paceline.families.training.api.pipeline.executor import PipelineReplica
from paceline.families.training.api.replica import Comm, Cost, Share, Task, UnsupportedError

SUMS = 4
"""Sums over ranks for each layer and microbatch: after each pair of matrices, and in backward before it."""


class HybridReplica(PipelineReplica):
    """Follows the table that a technique gives, in a mesh.

    Args:
        task: The rank's task.
        comm: The communicator.
        tensor: Ranks that share matrices, as far as they divide the ranks.
        pipeline: Stages, as far as they divide what is left; the rest are copies of the model.

    Raises:
        UnsupportedError: See ``PipelineReplica``; or heads or sequences cannot be dealt out evenly.
    """

    def __init__(self, task: Task, comm: Comm, tensor: int = 2, pipeline: int = 2) -> None:
        self.mesh = mesh = Mesh.of(task.rank, task.world_size, tensor=tensor, pipeline=pipeline)
        sequences = task.tokens // task.context
        if sequences % (mesh.data * task.microbatches):
            raise UnsupportedError(
                f"{sequences} sequences cannot be dealt out evenly to {number_of(mesh.data, 'copy')} of the model in "
                f"{task.microbatches} microbatches"
            )
        self.group = Group(comm=comm, ranks=mesh.tensor_ranks, place=mesh.tensor_place)
        # Before super().__init__, which calls lay() and held().
        self._parts: dict[int, tuple[Cut, nn.Parameter, int]] = {}
        """By the id of a whole matrix: which part of it lies here, that part, and columns of the whole."""
        super().__init__(task, comm, line=mesh.pipeline_ranks)
        self._cut = {
            number: (cut, width)
            for number, whole in enumerate(task.model.parameters())
            if (found := self._parts.get(id(whole))) is not None
            for cut, _, width in [found]
        }
        count = sum(p.numel() for p in self.own.values()) if mesh.data > 1 else 0
        self._bounds = chunk_bounds(count, mesh.data)
        self._gradients = torch.empty(count, device=task.device)
        self._scratch = torch.empty(2 * max(b - a for a, b in self._bounds), device=task.device)

    def lay(self, layer: nn.Module) -> nn.Module:
        """Return a layer that computes with a part of each matrix."""
        assert isinstance(layer, Layer)
        parts = cuts(layer, self.mesh.tensor, self.mesh.tensor_place)
        found = laid_out(layer, self.group, parts)
        for name, cut in parts.items():
            whole = layer.get_parameter(f"{name}.weight")
            local = found.get_parameter(f"{name}.linear.weight")
            # By id, since the base class numbers whole parameters, of which some are replaced by their part.
            self._parts[id(whole)] = cut, local, whole.shape[1]
        return found

    def held(self, parameter: nn.Parameter) -> nn.Parameter:
        """Return this rank's part of a matrix, and anything else in whole."""
        found = self._parts.get(id(parameter))
        return parameter if found is None else found[1]

    def part(self, sequences_BS: Tensor) -> Tensor:
        """Return every d-th sequence, from this copy's place on."""
        return sequences_BS[self.mesh.data_place :: self.mesh.data]

    def exchange_gradients(self, step: int) -> None:
        """Bring the embedding's gradient together, then average all over the copies."""
        # First, so that the embedding's gradient has the head's part in it before copies are averaged.
        super().exchange_gradients(step)
        if self.mesh.data == 1:
            return
        gradients = list(self._own_gradients())
        # One ring for all gradients: a ring for each would pay 2·(d − 1) latencies a tensor.
        torch.cat([g.reshape(-1) for g in gradients], out=self._gradients)
        chunks = [self._gradients[a:b] for a, b in self._bounds]
        place, ranks = self.mesh.data_place, self.mesh.data_ranks
        rings.finish(rings.reduce_scatter(self.comm, chunks, ranks, place, self._scratch))
        # Copies have equally many sequences, so the mean of their means is the batch's.
        chunks[place].div_(self.mesh.data)
        rings.finish(rings.all_gather(self.comm, chunks, ranks, place))
        means = torch.split(self._gradients, [g.numel() for g in gradients])
        for gradient, mean in zip(gradients, means, strict=True):
            gradient.copy_(mean.view_as(gradient))

    def cut_of(self, number: int) -> Cut | None:
        """Return which part of one of its parameters this rank holds; None where it holds it in whole."""
        found = self._cut.get(number)
        return None if found is None else found[0]

    def _own_gradients(self) -> Iterator[Tensor]:
        for parameter in self.own.values():
            assert parameter.grad is not None
            yield parameter.grad

    def shares(self) -> list[Share]:
        """Return this rank's parts of matrices, and what it holds in whole."""
        found: list[Share] = []
        for number, parameter in self.own.items():
            if number in self._cut:
                cut, width = self._cut[number]
                found += cut.shares(number, parameter.detach(), width)
            else:
                found.append((number, 0, parameter.detach().reshape(-1)))
        return found


def hybrid_cost(task: Task, *, tensor: int, pipeline: int) -> Cost:
    """Return what the busiest rank sends: activations between stages, sums inside layers, gradients between copies.

    Args:
        task: The task.
        tensor: As for ``HybridReplica``.
        pipeline: As for ``HybridReplica``.
    """
    found = [
        _sent(task, Mesh.of(rank, task.world_size, tensor=tensor, pipeline=pipeline))
        for rank in range(task.world_size)
    ]
    sent = max(elements for elements, _ in found) * 4
    messages = max(count for _, count in found)
    return Cost(sent_bytes=task.steps * sent, peak_bytes=sent, messages=task.steps * messages)


def _sent(task: Task, mesh: Mesh) -> tuple[int, int]:
    """Return the elements and messages that one rank sends in a step."""
    embedding = task.model.get_parameter("embedding.weight")
    layers = list(task.model.get_submodule("layers").children())
    stage, last = mesh.pipeline_place, mesh.pipeline - 1
    deal = len(layers) // mesh.pipeline
    activation = task.tokens // (mesh.data * task.microbatches) * embedding.shape[1]
    hops = task.microbatches * ((stage < last) + (stage > 0))
    # The tied embedding: its gradient from the last stage to the first, its new values back, one message each.
    ends = int(last > 0 and stage in (0, last))
    elements, messages = hops * activation + ends * embedding.numel(), hops + ends
    sums = SUMS * deal * task.microbatches
    inside, count = _ring(activation, mesh.tensor, mesh.tensor_place)
    elements, messages = elements + sums * inside, messages + sums * count
    # The head's copy is not averaged: it gets values of the first stage, whose gradient was.
    own = (stage == 0) * embedding.numel() + (stage == last) * embedding.shape[1]
    for layer in layers[stage * deal : (stage + 1) * deal]:
        for name, parameter in layer.named_parameters():
            # Matrices are named "weight" and cut; gains of norms are whole.
            own += parameter.numel() // (mesh.tensor if name.endswith("weight") else 1)
    between, count = _ring(own, mesh.data, mesh.data_place)
    return elements + between, messages + count


def _ring(count: int, ranks: int, place: int) -> tuple[int, int]:
    return rings.sent([b - a for a, b in chunk_bounds(count, ranks)], place)
