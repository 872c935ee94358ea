"""The seven classical operations: all-reduce, all-gather, reduce-scatter, all-to-all, broadcast, reduce, send-recv.

Buffers (count = elements of S, share = count / n):
all_reduce        run(buffer [count])                          in place
broadcast         run(buffer [count])                          in place; only the root's content counts
reduce            run(buffer [count])                          in place; defined on the root afterwards
all_gather        run(send [share], receive [count])
reduce_scatter    run(send [count], receive [share])
all_to_all        run(send [count], receive [count])
send_recv         run(send [count], receive [count])           to rank + 1, from rank − 1, modulo n
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from paceline.families.collectives.operation import (
    Expected,
    Instance,
    Role,
    exact_sum,
    sum_bound,
    sum_expected,
)
from paceline.families.collectives.payloads import draw
from paceline.families.collectives.problem import Problem


def everyones_inputs(problem: Problem, count: int, payload: str, seed: int, magnitude: float) -> list[Tensor]:
    """Return the input of every rank, in rank order, on the problem's device."""
    inputs = []
    for rank in range(problem.world_size):
        values = draw(
            payload, count, seed=seed, rank=rank, world_size=problem.world_size, dtype=problem.dtype
        )
        if magnitude != 1.0:
            values = values * magnitude
        inputs.append(values.to(problem.device))
    return inputs


def exactly_representable(payload: str) -> bool:
    """Tell whether sums of this payload are exact in every dtype."""
    return payload in ("integers", "shared-sign", "shared-spike")


@dataclass(frozen=True, slots=True, kw_only=True)
class InPlace:
    """all_reduce, broadcast and reduce: one buffer that is input and output."""

    name: str
    buffers: tuple[str, ...] = ("buffer",)
    roles: tuple[Role, ...] = ("inout",)
    scalable: bool = True

    def shapes(self, problem: Problem) -> tuple[tuple[int, ...], ...]:
        """Return one shape: (count,)."""
        return ((problem.count,),)

    def instance(self, problem: Problem, *, payload: str, seed: int, magnitude: float = 1.0) -> Instance:
        """Draw one input a rank; the result is their sum, or the root's input."""
        inputs = everyones_inputs(problem, problem.count, payload, seed, magnitude)
        own = inputs[problem.rank]
        if self.name == "broadcast":
            return Instance(arguments=(own,), expected=(Expected(value=inputs[problem.root]),))
        if self.name == "reduce" and problem.rank != problem.root:
            return Instance(arguments=(own,), expected=(None,))
        exact = exactly_representable(payload) and magnitude == 1.0
        return Instance(arguments=(own,), expected=(sum_expected(inputs, exact=exact),))


@dataclass(frozen=True, slots=True, kw_only=True)
class AllGather:
    """Concatenate all ranks' shares."""

    name: str = "all_gather"
    buffers: tuple[str, ...] = ("send", "receive")
    roles: tuple[Role, ...] = ("in", "out")
    scalable: bool = True

    def shapes(self, problem: Problem) -> tuple[tuple[int, ...], ...]:
        """Return (share,) and (count,)."""
        return ((problem.share,), (problem.count,))

    def instance(self, problem: Problem, *, payload: str, seed: int, magnitude: float = 1.0) -> Instance:
        """Draw one share a rank."""
        inputs = everyones_inputs(problem, problem.share, payload, seed, magnitude)
        swapped = torch.cat(inputs[1:] + inputs[:1])
        return Instance(
            arguments=(inputs[problem.rank], None),
            expected=(None, Expected(value=torch.cat(inputs))),
            wrong=(("swapped-ranks", (None, swapped)),),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReduceScatter:
    """Sum over ranks, each keeping its share."""

    name: str = "reduce_scatter"
    buffers: tuple[str, ...] = ("send", "receive")
    roles: tuple[Role, ...] = ("in", "out")
    scalable: bool = True

    def shapes(self, problem: Problem) -> tuple[tuple[int, ...], ...]:
        """Return (count,) and (share,)."""
        return ((problem.count,), (problem.share,))

    def instance(self, problem: Problem, *, payload: str, seed: int, magnitude: float = 1.0) -> Instance:
        """Draw one full buffer a rank."""
        inputs = everyones_inputs(problem, problem.count, payload, seed, magnitude)
        shares = [x.view(problem.world_size, -1) for x in inputs]
        exact = exactly_representable(payload) and magnitude == 1.0
        mine = sum_expected([s[problem.rank] for s in shares], exact=exact)
        other = exact_sum([s[(problem.rank + 1) % problem.world_size] for s in shares])
        return Instance(
            arguments=(inputs[problem.rank], None),
            expected=(None, mine),
            wrong=(("swapped-ranks", (None, other.to(mine.value.dtype))),),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AllToAll:
    """Transpose the matrix of shares."""

    name: str = "all_to_all"
    buffers: tuple[str, ...] = ("send", "receive")
    roles: tuple[Role, ...] = ("in", "out")
    scalable: bool = True

    def shapes(self, problem: Problem) -> tuple[tuple[int, ...], ...]:
        """Return (count,) twice."""
        return ((problem.count,), (problem.count,))

    def instance(self, problem: Problem, *, payload: str, seed: int, magnitude: float = 1.0) -> Instance:
        """Draw one full buffer a rank; rank r ends with the r-th share of each."""
        size = problem.world_size
        shares = [
            x.view(size, -1) for x in everyones_inputs(problem, problem.count, payload, seed, magnitude)
        ]
        mine = torch.cat([s[problem.rank] for s in shares])
        other = torch.cat([s[(problem.rank + 1) % size] for s in shares])
        return Instance(
            arguments=(shares[problem.rank].reshape(-1), None),
            expected=(None, Expected(value=mine)),
            wrong=(
                ("swapped-ranks", (None, other)),
                ("identity", (None, shares[problem.rank].reshape(-1))),
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SendReceive:
    """Shift buffers to the next rank."""

    name: str = "send_recv"
    buffers: tuple[str, ...] = ("send", "receive")
    roles: tuple[Role, ...] = ("in", "out")
    scalable: bool = True

    def shapes(self, problem: Problem) -> tuple[tuple[int, ...], ...]:
        """Return (count,) twice."""
        return ((problem.count,), (problem.count,))

    def instance(self, problem: Problem, *, payload: str, seed: int, magnitude: float = 1.0) -> Instance:
        """Draw one buffer a rank; rank r ends with rank r − 1's."""
        inputs = everyones_inputs(problem, problem.count, payload, seed, magnitude)
        size = problem.world_size
        return Instance(
            arguments=(inputs[problem.rank], None),
            expected=(None, Expected(value=inputs[(problem.rank - 1) % size])),
            wrong=(
                ("wrong-direction", (None, inputs[(problem.rank + 1) % size])),
                ("identity", (None, inputs[problem.rank])),
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Mix:
    """Gossip: replicas move towards their mean by a doubly stochastic exchange.

    ``run(buffer [count])`` in place. Which replicas mix is the technique's choice, so the oracle does not prescribe a
    result: it recovers the mixing weights from the outputs and demands that they are doubly stochastic (see
    ``oracle.check_mixing``).
    """

    name: str = "mix"
    buffers: tuple[str, ...] = ("buffer",)
    roles: tuple[Role, ...] = ("inout",)
    scalable: bool = True

    def shapes(self, problem: Problem) -> tuple[tuple[int, ...], ...]:
        """Return one shape: (count,)."""
        return ((problem.count,),)

    def instance(self, problem: Problem, *, payload: str, seed: int, magnitude: float = 1.0) -> Instance:
        """Draw one buffer a rank; the expected value is the mean, which full mixing would reach."""
        inputs = everyones_inputs(problem, problem.count, payload, seed, magnitude)
        mean = exact_sum(inputs).to(torch.float64) / problem.world_size
        dtype = problem.dtype if problem.dtype.is_floating_point else torch.float64
        bound = sum_bound([x.to(dtype) for x in inputs], dtype, problem.world_size + 1)
        return Instance(
            arguments=(inputs[problem.rank],),
            expected=(Expected(value=mean, bound=bound, contributions=tuple(inputs)),),
        )
