"""FedDIP: a model that is pruned ever more while it is learned, with error feedback and a growing penalty.

Long, Anagnostopoulos, Parambath & Bi, 2023, "FedDIP: Federated Learning with Extreme Dynamic Pruning and Incremental
Regularization" (ICDM).

Algorithm, in round t of T:
1. sparsity s_t = s_T + (s_0 − s_T)·(1 − t/T)³.
2. A client takes local steps: the gradient is that of its weights as pruned by the server's map, and is added to the
   weights as they are (error feedback), so that what was pruned can come back; with a penalty λ_t·‖x‖ on what is left,
   whose λ_t grows by steps.
3. It sends its largest weights (``whole_up``: all); the server averages, and prunes to s_t every ``reconfigure``
   rounds, else to the same weights as before.
Cost of a round: for each client a map of dim bits and 32·(1 − s)·dim bits of numbers, both ways; with ``whole_up``
32·dim bits of numbers up.
Limits: weights that no client keeps are lost with the round.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from paceline.baselines.training.federated_averaging import FederatedAveraging

from paceline import technique
from paceline.families.training.api.objective import (
    SERVER,
    Array,
    Given,
    Gradient,
    Message,
    Parts,
    Receive,
    Report,
    Run,
    Send,
    Sizes,
)

Places = npt.NDArray[np.bool_]
SEGMENTS = 20
FIRST_PENALTY = 5e-4


def sparsity_of(number: int, rounds: int, first: float, last: float) -> float:
    """Return the share of weights that are zero in a round."""
    return last + (first - last) * (1.0 - min(number, rounds) / rounds) ** 3


def penalty_of(number: int, rounds: int, largest: float) -> float:
    """Return λ in a round: none in the first of 20 segments, then from 5e-4 in even steps to the largest."""
    segment = min(SEGMENTS - 1, number * SEGMENTS // rounds)
    if segment == 0 or largest == 0.0:
        return 0.0
    return FIRST_PENALTY + (largest - FIRST_PENALTY) / (SEGMENTS - 1) * (segment - 1)


def largest_of(weights: Array, sparsity: float) -> Places:
    """Return where the largest weights are, as booleans [dim]."""
    count = max(1, round((1.0 - sparsity) * len(weights)))
    found = np.zeros(len(weights), dtype=bool)
    found[np.argsort(-np.abs(weights), kind="stable")[:count]] = True
    return found


@technique(
    name="feddip",
    family="training",
    implements=("objective",),
    summary="prunes the model ever more while clients learn it, with error feedback and a growing penalty",
    paper="feddip",
    properties={
        "equals": {
            "plain": "federated-averaging",
            "arguments": {
                "rate": 0.5,
                "local_steps": 3,
                "minibatch": 0,
                "first": 0.0,
                "last": 0.0,
                "penalty": 0.0,
                "single": False,
            },
            "rate": 0.5,
            "steps": 3,
        }
    },
    fidelity={
        "source": {
            "read": "code",
            "paper": "abstract; its text could not be had, and the code stands for it",
            "code": "github.com/EricLoong/feddip: README.md, exp_args.py, fl_server.py, client.py, fl_functions.py",
        },
        "deviations": (
            "Clients send their largest weights alone; the authors' code sends models up whole (whole_up).",
            "A new map is chosen from all weights of the mean, so that pruned ones come back; the authors' code "
            "applies the old map first, after which no weight comes back.",
            "The first map keeps any weights, since all begin at zero; the authors draw it layer by layer.",
            "Weights do not decay besides; the authors' optimiser has 5e-4 of it.",
            "All clients take part in every round; the authors sample a tenth.",
            "Weights are one layer, so that pruning over all layers and within one are the same.",
            "The rate does not fall; the authors multiply it by 0.998 in every round.",
        ),
        "constants": {
            "rounds": {
                "here": 60,
                "authors": "1000 (--epochs in the README)",
                "official": 1000,
                "source": "github.com/EricLoong/feddip: README.md",
                "differs": "rounds are fewer, since problems are convex",
            },
            "first": {
                "here": 0.5,
                "authors": "0.5 (--init_sparsity)",
                "official": 0.5,
                "source": "github.com/EricLoong/feddip: exp_args.py",
            },
            "last": {
                "here": 0.9,
                "authors": "0.9 and 0.95 (--amount_sparsity in the README)",
                "official": 0.95,
                "source": "github.com/EricLoong/feddip: README.md",
                "differs": "the sparsity of their other example, 0.9",
            },
            "reconfigure": {
                "here": 5,
                "authors": "5 in the README (--reconfig_interval), 20 by default",
                "official": 5,
                "source": "github.com/EricLoong/feddip: README.md",
            },
            "penalty": {
                "here": 0.001,
                "authors": "0.001 (--lambda_shrink)",
                "official": 0.001,
                "source": "github.com/EricLoong/feddip: exp_args.py",
            },
            "FIRST_PENALTY": {
                "here": 5e-4,
                "authors": "5e-4 (client.py)",
                "official": 0.0005,
                "source": "github.com/EricLoong/feddip: client.py",
            },
            "SEGMENTS": {
                "here": 20,
                "authors": "20 (client.py)",
                "official": 20,
                "source": "github.com/EricLoong/feddip: client.py",
            },
            "rate": {
                "here": 0.5,
                "authors": "0.1; in units of 1/L here",
                "official": 0.1,
                "source": "github.com/EricLoong/feddip: exp_args.py",
                "differs": "in units of 1/L here",
            },
            "local_steps": {"here": 5, "authors": "5 epochs in the README"},
            "whole_up": {"here": False, "authors": "true by the code; open in the abstract"},
            "minibatch": {
                "here": 0,
                "authors": "128; 0 takes all samples",
                "official": 128,
                "source": "github.com/EricLoong/feddip: exp_args.py",
                "differs": "gradients are of all samples, since problems are convex and small",
            },
            "single": {"here": True, "authors": "single precision"},
        },
        "checked_by": (
            "tests/unit/test_objective_techniques.py::test_sparsity_and_penalty_follow_their_schedules",
            "tests/unit/test_objective_techniques.py::test_feddip_learns_by_the_map_that_it_was_sent",
            "tests/unit/test_objective_techniques.py::test_reductions_are_equal_iterate_by_iterate",
        ),
    },
)
class FedDip(FederatedAveraging):  # type: ignore[misc]  # mypy reads baselines under another name
    """Average what is left of models."""

    def __init__(
        self,
        *,
        rounds: int = 60,
        first: float = 0.5,
        last: float = 0.9,
        reconfigure: int = 5,
        penalty: float = 0.001,
        rate: float = 0.5,
        local_steps: int = 5,
        minibatch: int = 0,
        whole_up: bool = False,
        single: bool = True,
    ) -> None:
        super().__init__(rate=rate, local_steps=local_steps, minibatch=minibatch, single=single)
        self.rounds, self.first, self.last = rounds, first, last
        self.reconfigure, self.penalty, self.whole_up = reconfigure, penalty, whole_up

    def sizes(self, given: Given) -> Sizes:
        """Return the least and the most: a map, and numbers for what is left at the end and at the beginning."""
        width, places = 8 * np.dtype(self.dtype).itemsize, 8 * -(-given.dim // 8)
        counts = [max(1, round((1.0 - s) * given.dim)) for s in (self.last, self.first)]
        sizes = (places + width * min(counts), places + width * max(counts))
        clients = (places + width * given.dim,) if self.whole_up else sizes
        return Sizes(clients=clients, server=sizes, at_least=True)

    def _packed(self, weights: Array, kept: Places) -> Parts:
        return np.packbits(kept), weights[kept].astype(self.dtype)

    def _unpacked(self, given: Given, message: Message) -> tuple[Array, Places]:
        kept = np.unpackbits(message.parts[0], count=given.dim).astype(bool)
        weights = np.zeros(given.dim)
        weights[kept] = message.parts[1]
        return weights, kept

    def _learn(self, given: Given) -> Run:
        number = 0
        while True:
            own, kept = self._unpacked(given, (yield Receive()))
            shrink = penalty_of(number, self.rounds, self.penalty)
            for _ in range(self.local_steps):
                pruned = np.where(kept, own, 0.0)
                slope = yield Gradient(pruned, self.minibatch)
                norm = float(np.linalg.norm(pruned))
                slope = slope + (shrink * pruned / norm if norm > 0.0 else 0.0)
                # error feedback: what the map leaves out moves as well
                own = own - self.rate / given.smoothness * slope
            sparsity = 0.0 if self.whole_up else sparsity_of(number, self.rounds, self.first, self.last)
            yield Send(SERVER, self._packed(own, largest_of(own, sparsity)))
            number += 1

    def _serve_all(self, given: Given) -> Run:
        model, number = given.start.copy(), 0
        kept = largest_of(model, sparsity_of(0, self.rounds, self.first, self.last))
        while True:
            for client in given.neighbours:
                yield Send(client, self._packed(model, kept))
            told: dict[int, Array] = {}
            while len(told) < len(given.neighbours):
                message = yield Receive()
                told[message.sender], _ = self._unpacked(given, message)
            model = np.sum([given.weights[c] * told[c] for c in given.neighbours], axis=0)
            if number % self.reconfigure == 0 or number >= self.rounds:
                kept = largest_of(model, sparsity_of(number, self.rounds, self.first, self.last))
            model = np.where(kept, model, 0.0)
            number += 1
            yield Report(model)
