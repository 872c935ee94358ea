"""Decoupled momentum: only the few fast components of a momentum leave a group of ranks, the rest stays and decays.

What groups send for a coefficient is added up before transform and sign. The published optimiser takes its mean over
those that sent it, which ``mean_over`` can ask for.
"""

from __future__ import annotations

import math
import random
from typing import Literal

import torch
from torch import Tensor

from paceline.families.collectives.api import rings
from paceline.families.collectives.api.codecs import index_bytes, num_parts, pack_indices, unpack_indices
from paceline.families.collectives.api.problem import chunk_bounds
from paceline.families.training.api.replica import Comm, Cost, FlatReplica, Task

CHUNK = 4096
"""Elements that are transformed together, as a square of ``SIDE``; what 12 bits can address."""
SIDE = 64
VALUE_BYTES = 2
"""bfloat16: a momentum may have any size, and what rounding loses stays in it."""

Scheme = Literal["dct", "random", "striding"]
MeanOver = Literal["ranks", "senders"]
"""Whose mean a coefficient takes: of all, so that signs are a sum's, or of those that sent it."""


def cosines(size: int, device: torch.device) -> Tensor:
    """Return the orthonormal matrix of the discrete cosine transform (type II), (size, size), a row a frequency."""
    place = torch.arange(size, dtype=torch.float64)
    # In float64: its transpose is taken for its inverse, so what it lacks of orthogonality stays in momenta.
    matrix = torch.cos(math.pi / size * (place[None, :] + 0.5) * place[:, None]) * math.sqrt(2 / size)
    matrix[0] /= math.sqrt(2)
    return matrix.to(torch.float32).to(device)


class Extractor:
    """Chooses components of a vector, and codes and decodes them.

    ``dct`` takes the ``k`` largest coefficients of each chunk's two-dimensional cosine transform, with their places;
    ``random`` and ``striding`` take elements at places that all ranks know, so that only values travel.

    Args:
        count: Elements of the vector.
        k: Components of each chunk of 4096.
        scheme: How they are chosen.
        device: Where the vector is.
    """

    def __init__(self, count: int, k: int, scheme: Scheme, device: torch.device) -> None:
        self.count, self.k, self.scheme, self.device = count, k, scheme, device
        self.chunks = num_parts(count, CHUNK)
        self._cosines_FS = cosines(SIDE, device)

    @property
    def message_bytes(self) -> int:
        """Length of a message."""
        return message_bytes(self.count, self.k, self.scheme)

    def encode(self, vector_m: Tensor, message: Tensor, places: Tensor) -> None:
        """Write the components of a vector that ``dct`` finds largest, or that lie at ``places``.

        Args:
            vector_m: (count,), float32.
            message: ``message_bytes`` bytes to fill, uint8: bfloat16 values, then packed places of ``dct``.
            places: Elements, int64; not read by ``dct``.
        """
        if not self.count:
            return
        values_CE = self._transform(vector_m)
        if self.scheme != "dct":
            message.view(torch.bfloat16).copy_(values_CE.view(-1)[places])
            return
        # Unsorted: places travel with the values, so their order means nothing.
        _, inside_Ck = values_CE.abs().topk(self.k, dim=1, sorted=False)
        head = self.chunks * self.k * VALUE_BYTES
        message[:head].view(torch.bfloat16).copy_(values_CE.gather(1, inside_Ck).view(-1))
        message[head:].copy_(pack_indices(inside_Ck.view(-1)))

    def add_decoded(
        self, message: Tensor, total_CE: Tensor, places: Tensor, senders_CE: Tensor | None = None
    ) -> None:
        """Add a message's components to coefficients, (chunks, 4096) in float32, in place.

        Args:
            message: What ``encode`` has filled, uint8.
            total_CE: Takes them.
            places: As for ``encode``.
            senders_CE: Takes 1 for each component.
        """
        if not self.count:
            return
        if self.scheme == "dct":
            head = self.chunks * self.k * VALUE_BYTES
            inside = unpack_indices(message[head:], self.chunks * self.k)
            first = torch.arange(self.chunks, device=self.device).repeat_interleave(self.k) * CHUNK
            places, message = inside + first, message[:head]
        # Added: groups may choose one place. Within a message places differ, so sums have one order.
        values = message.view(torch.bfloat16).float()
        total_CE.view(-1).index_add_(0, places, values)
        if senders_CE is not None:
            senders_CE.view(-1).index_add_(0, places, torch.ones_like(values))

    def restore(self, coefficients_CE: Tensor) -> Tensor:
        """Return the vector, (count,) in float32, that coefficients, (chunks, 4096), stand for."""
        if self.scheme == "dct" and self.count:
            square_CSS = coefficients_CE.view(-1, SIDE, SIDE)
            # The inverse of an orthonormal transform is its transpose, on both sides of the square.
            coefficients_CE = self._cosines_FS.T @ square_CSS @ self._cosines_FS
        return coefficients_CE.reshape(-1)[: self.count]

    def zeros(self) -> Tensor:
        """Return coefficients of nothing, (chunks, 4096)."""
        return torch.zeros(self.chunks, CHUNK, device=self.device)

    def places(self, step: int, seed: int) -> Tensor:
        """Return the elements whose turn it is, equal on all ranks; none for ``dct``."""
        if self.scheme == "dct":
            return torch.empty(0, dtype=torch.int64, device=self.device)
        wanted = num_values(self.count, self.k, self.scheme)
        if self.scheme == "random":
            # The text (seed, step) seeds the same draw on every rank and after a restart; no generator has to be kept.
            found = torch.tensor(random.Random(f"{seed}/{step}").sample(range(self.count), wanted))
        else:
            # Shifted by one each step, so that every element has its turn after a stride's length of steps.
            found = (torch.arange(wanted) * self.count // max(wanted, 1) + step) % max(self.count, 1)
        return found.to(torch.int64).to(self.device)

    def _transform(self, vector_m: Tensor) -> Tensor:
        padded = torch.zeros(self.chunks * CHUNK, device=self.device)
        padded[: self.count] = vector_m
        if self.scheme != "dct":
            return padded.view(-1, CHUNK)
        squares_CSS = padded.view(-1, SIDE, SIDE)
        found: Tensor = self._cosines_FS @ squares_CSS @ self._cosines_FS.T
        return found.reshape(-1, CHUNK)


def num_values(count: int, k: int, scheme: Scheme) -> int:
    """Return the components of a message: as many as need the same bytes in every scheme, places included."""
    chosen = num_parts(count, CHUNK) * k
    if scheme == "dct":
        return chosen
    # Places that all ranks know cost nothing: their 12 bits are spent on more values instead.
    return min(message_bytes(count, k, "dct") // VALUE_BYTES, count)


def message_bytes(count: int, k: int, scheme: Scheme) -> int:
    """Return the length of a message: half-precision values, and 12 bits for each place that is not known."""
    if scheme != "dct":
        return num_values(count, k, scheme) * VALUE_BYTES
    chosen = num_parts(count, CHUNK) * k
    return chosen * VALUE_BYTES + index_bytes(chosen)


class DecoupledMomentum(FlatReplica):
    """Gradients are averaged inside a group in shares; of a share's momentum only chosen components leave the group.

    Rank r belongs to group r // g and owns share r mod g of the vector, as its peers in other groups do.

    Args:
        task: The task.
        comm: The communicator.
        group: g, lowered to the greatest divisor that it shares with the number of ranks.
        k: Components of each chunk of 4096.
        scheme: How they are chosen.
        decay: β of the momentum.
        rate_factor: Times the task's learning rate: a sign is a step of its own length, whatever Adam's would be.
        mean_over: Whose mean a coefficient takes before transform and sign.
    """

    def __init__(
        self,
        task: Task,
        comm: Comm,
        *,
        group: int,
        k: int,
        scheme: Scheme,
        decay: float,
        rate_factor: float,
        mean_over: MeanOver = "ranks",
    ) -> None:
        super().__init__(task, comm)
        self.mean_over = mean_over
        size = group_size(group, comm.world_size)
        self.decay, self.rate_factor = decay, rate_factor
        first = comm.rank - comm.rank % size
        self.group = range(first, first + size)
        self.place = comm.rank % size
        # The ranks that own the same share in other groups, in the groups' order: a peer's index is its group.
        self.peers = range(self.place, comm.world_size, size)
        self.bounds = chunk_bounds(self.flat.values.numel(), size)
        start, stop = self.bounds[self.place]
        self.momentum = self.register_state(
            "momentum", torch.zeros_like(self.flat.values[start:stop]), kind="optimizer"
        )
        self.extractor = Extractor(stop - start, k, scheme, task.device)
        longest = max(b - a for a, b in self.bounds)
        self.scratch = torch.empty(2 * longest if size > 1 else 0, device=task.device)
        length = self.extractor.message_bytes
        self.messages = [torch.empty(length, dtype=torch.uint8, device=task.device) for _ in self.peers]

    def make_optimizer(self) -> torch.optim.Optimizer:
        """Return plain descent, which ``update`` gives the direction."""
        return torch.optim.SGD([self.flat.parameter], lr=self.task.peak_rate)

    def exchange_gradients(self, step: int) -> None:
        """Leave the signs of all groups' fast components in this rank's share of the gradients."""
        chunks = [self.flat.gradients[a:b] for a, b in self.bounds]
        size = len(self.group)
        if size > 1:
            rings.finish(rings.reduce_scatter(self.comm, chunks, self.group, self.place, self.scratch))
        own = chunks[self.place]
        # The ring has summed over the group; alpha = 1/g makes it the group's mean.
        self.momentum.mul_(self.decay).add_(own, alpha=1 / size)
        places = self.extractor.places(step, self.task.seed)
        mine = self.messages[self.comm.rank // size]
        with self.comm.span("compress"):
            self.extractor.encode(self.momentum, mine, places)
            sent = self.extractor.zeros()
            # What leaves the momentum is what others decode: bfloat16's rounding stays for later steps.
            self.extractor.add_decoded(mine, sent, places)
            self.momentum.sub_(self.extractor.restore(sent))
        received = zip(self.peers, self.messages, strict=True)
        others = [(peer, message) for peer, message in received if peer != self.comm.rank]
        self.comm.start(
            sends=[(mine, peer) for peer, _ in others],
            receives=[(message, peer) for peer, message in others],
        ).wait()
        with self.comm.span("decompress"):
            total = self.extractor.zeros()
            senders = self.extractor.zeros() if self.mean_over == "senders" else None
            # In the groups' order on every rank, the own message among them: sums and signs have equal bits everywhere.
            for message in self.messages:
                self.extractor.add_decoded(message, total, places, senders)
            if senders is not None:
                total.div_(senders.clamp_(min=1))
            own.copy_(self.extractor.restore(total).sign())

    def update(self, step: int) -> None:
        """Step this rank's share; the group's other shares follow in ``exchange_parameters``."""
        start, stop = self.bounds[self.place]
        rate = self.optimizer.param_groups[0]["lr"] * self.rate_factor
        # Signs instead of an optimiser: the SGD made above only carries the learning rate.
        self.flat.values[start:stop].sub_(self.flat.gradients[start:stop], alpha=rate)

    def exchange_parameters(self, step: int) -> None:
        """Gather the group's shares."""
        if len(self.group) > 1:
            chunks = [self.flat.values[a:b] for a, b in self.bounds]
            rings.finish(rings.all_gather(self.comm, chunks, self.group, self.place))


def group_size(group: int, world_size: int) -> int:
    """Return the largest size of groups that divides both."""
    # Groups must be equal, or ranks of unequal groups would own shares with different bounds.
    return math.gcd(group, world_size)


def decoupled_cost(task: Task, *, group: int, k: int, scheme: Scheme) -> Cost:
    """Return a ring all-reduce's bytes inside the group and a message to each peer outside, for all steps."""
    size = group_size(group, task.world_size)
    shares = [stop - start for start, stop in chunk_bounds(task.num_parameters, size)]
    peers = task.world_size // size - 1
    busiest = messages = 0
    for place, share in enumerate(shares):
        elements, count = rings.sent(shares, place)
        outside = message_bytes(share, k, scheme)
        busiest = max(busiest, 4 * elements + peers * outside)
        messages = max(messages, count + peers * bool(outside))
    return Cost(sent_bytes=task.steps * busiest, peak_bytes=busiest, messages=task.steps * messages)
