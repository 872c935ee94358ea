"""MoDeST: in every round a sample of nodes, which all nodes derive alike, trains, and others of them aggregate.

de Vos et al., 2023, "MoDeST: Bridging the Gap between Federated and Decentralized Learning with Decentralized
Sampling" (arXiv:2302.13837).

Algorithm: nodes are ordered by a hash of round and node. For round k
1. an aggregator of round k pings nodes in the order of k until ``sample`` of them have answered within ``ping``, and
   sends them the model: these train;
2. each trainer takes local steps, pings nodes in the order of k + 1 until ``aggregators`` have answered, and sends
   them its model;
3. an aggregator of round k + 1 waits for ``fraction`` of the sample, or for ``patience`` after the first, and
   averages. Who has never answered is asked after all others.
Cost of a round: 2·sample·aggregators models of 32·dim bits each, and pings and answers of 64 bits.
Limits: whoever is sampled must answer pings while it trains; here it answers before and after a step.
"""

from __future__ import annotations

import numpy as np
from paceline.baselines.training.sampled_averaging import order

from paceline import technique
from paceline.families.training.api.objective import (
    Array,
    Given,
    Gradient,
    Message,
    Now,
    Receive,
    Report,
    Run,
    Send,
    Sizes,
    UnsupportedError,
)

PING, PONG, TRAIN, TRAINED = range(4)


@technique(
    name="modest",
    family="training",
    implements=("objective",),
    summary="samples that all nodes derive alike train and aggregate, without a server",
    paper="modest",
    properties={"server": False},
    fidelity={
        "source": {
            "read": "code",
            "paper": "abstracts of arXiv:2302.13837, the first version and the later ones, which call it Plexus",
            "code": "github.com/devos50/decentralized-learning: accdfl/dfl (community.py, caches.py and others), "
            "accdfl/core/session_settings.py; github.com/sacs-epfl/plexus: dlsim/plexus, dlsim/dl, simulations/args.py",
        },
        "deviations": (
            "All nodes know each other from the beginning; joining, the views of membership that the authors send with "
            "every model, and acknowledgements of aggregators are left out.",
            "Nodes that did not answer a ping are asked after all others; the authors leave out who was not active in "
            "the last 50 rounds.",
            "Pings are not repeated; the authors send a second one after a second.",
            "At its latest an aggregator averages whatever has come; the authors' wants three models.",
            "A trainer ends its steps; the authors' stops when a later round's model comes.",
            "A node that computes answers pings between its steps; the authors' at once.",
        ),
        "constants": {
            "sample": {
                "here": 4,
                "authors": "10 by default, 13 in the README (sample_size)",
                "official": 10,
                "source": "github.com/devos50/decentralized-learning: simulations/args.py",
                "differs": "nodes are fewer",
            },
            "aggregators": {"here": 1, "authors": "1 (num_aggregators)"},
            "fraction": {
                "here": 1.0,
                "authors": "1 by default, 0.8 in the README (success_fraction)",
                "official": 1.0,
                "source": "github.com/devos50/decentralized-learning: accdfl/core/session_settings.py",
            },
            "ping": {
                "here": 5.0,
                "authors": "5 seconds (ping_timeout)",
            },
            "patience": {
                "here": 40.0,
                "authors": "300 seconds (aggregation_timeout)",
                "official": 300.0,
                "source": "github.com/devos50/decentralized-learning: accdfl/core/session_settings.py",
                "differs": "rounds are shorter, since problems are convex",
            },
            "rate": {"here": 0.5, "authors": "by experiment; in units of 1/L here"},
            "local_steps": {"here": 5, "authors": "5 (local_steps)"},
            "minibatch": {"here": 0, "authors": "20; 0 takes all samples"},
            "single": {"here": True, "authors": "single precision"},
        },
        "checked_by": (
            "tests/unit/test_objective_techniques.py::test_samples_are_drawn_alike_everywhere_and_evenly",
            "tests/unit/test_objective_techniques.py::test_modest_goes_on_when_nodes_are_gone",
        ),
    },
)
class Modest:
    """Sample, train, aggregate."""

    def __init__(
        self,
        *,
        sample: int = 4,
        aggregators: int = 1,
        fraction: float = 1.0,
        ping: float = 5.0,
        patience: float = 40.0,
        rate: float = 0.5,
        local_steps: int = 5,
        minibatch: int = 0,
        single: bool = True,
    ) -> None:
        self.sample, self.aggregators, self.fraction = sample, aggregators, fraction
        self.ping, self.patience, self.rate = ping, patience, rate
        self.local_steps, self.minibatch = local_steps, minibatch
        self.dtype = np.float32 if single else np.float64
        self.silent: dict[int, int] = {}
        """Pings that were not answered, by node."""
        self.waiting: list[Message] = []

    def sizes(self, given: Given) -> Sizes:
        """Return the size of a ping, and of a model with its kind and round."""
        if len(given.neighbours) < given.num_nodes - 1:
            raise UnsupportedError("samples are of all nodes: it needs a complete graph")
        return Sizes(clients=(64, 64 + given.dim * 8 * np.dtype(self.dtype).itemsize))

    def run(self, given: Given) -> Run:
        """Be one node."""
        self.nodes = (given.me, *given.neighbours)
        heard: dict[int, list[Array]] = {}
        due: dict[int, float] = {}
        done = -1
        if given.me == order(0, self.nodes)[0]:
            yield from self._aggregate(given, 0, [given.start])
            done = 0
        while True:
            message = yield from self._next(given, min(due.values(), default=None))
            now_s = yield Now()
            if message is None:
                ready = [k for k, at_s in due.items() if at_s <= now_s]
            else:
                kind, number = (int(n) for n in message.parts[0])
                if kind == TRAIN:
                    yield from self._train(given, number, message.parts[1].astype(np.float64))
                    continue
                if kind != TRAINED or number <= done:
                    continue
                heard.setdefault(number, []).append(message.parts[1].astype(np.float64))
                due.setdefault(number, now_s + self.patience)
                ready = [number] if len(heard[number]) >= self.fraction * self.sample else []
            for number in ready:
                del due[number]
                done = max(done, number)
                yield from self._aggregate(given, number, heard.pop(number))

    def _next(self, given: Given, until_s: float | None) -> Run:
        """Return the next message that is no ping; pings are answered."""
        if self.waiting:
            return self.waiting.pop(0)
        while True:
            # an instant that passed while it trained is now
            now_s = yield Now()
            message = yield Receive(until_s=None if until_s is None else max(until_s, now_s))
            if message is None or int(message.parts[0][0]) not in (PING, PONG):
                return message
            yield from self._pong(message)

    def _pong(self, message: Message) -> Run:
        if int(message.parts[0][0]) == PING:
            yield Send(message.sender, (np.array([PONG, message.parts[0][1]], dtype=np.int32),))

    def _alive(self, given: Given, number: int, wanted: int) -> Run:
        """Return the first nodes in a round's order that answer, this one included where it is among them."""
        asked = sorted(order(number, self.nodes), key=lambda n: self.silent.get(n, 0) > 0)
        found: list[int] = []
        while asked and len(found) < wanted:
            batch, asked = asked[: wanted - len(found)], asked[wanted - len(found) :]
            answered = {given.me} & set(batch)
            for node in batch:
                if node != given.me:
                    yield Send(node, (np.array([PING, number], dtype=np.int32),))
            until_s = (yield Now()) + self.ping
            while len(answered) < len(batch):
                message = yield Receive(until_s=until_s)
                if message is None:
                    break
                kind = int(message.parts[0][0])
                if kind == PONG and message.sender in batch:
                    answered.add(message.sender)
                elif kind == PING:
                    yield from self._pong(message)
                elif kind != PONG:
                    self.waiting.append(message)
            for node in batch:
                self.silent[node] = 0 if node in answered else self.silent.get(node, 0) + 1
            found += [n for n in batch if n in answered]
        return found

    def _aggregate(self, given: Given, number: int, models: list[Array]) -> Run:
        """Average, and let the sample of this round train."""
        mean = np.mean(models, axis=0)
        yield Report(mean)
        sample = yield from self._alive(given, number, self.sample)
        for node in sample:
            if node != given.me:
                yield Send(node, (np.array([TRAIN, number], dtype=np.int32), mean.astype(self.dtype)))
        if given.me in sample:
            yield from self._train(given, number, mean)

    def _train(self, given: Given, number: int, model: Array) -> Run:
        """Take local steps, and send the model to the aggregators of the next round."""
        own = model
        for _ in range(self.local_steps):
            own = own - self.rate / given.smoothness * (yield Gradient(own, self.minibatch))
            now_s = yield Now()
            while (message := (yield Receive(until_s=now_s))) is not None:
                if int(message.parts[0][0]) in (PING, PONG):
                    yield from self._pong(message)
                else:
                    self.waiting.append(message)
        told = (np.array([TRAINED, number + 1], dtype=np.int32), own.astype(self.dtype))
        for node in (yield from self._alive(given, number + 1, self.aggregators)):
            if node == given.me:
                self.waiting.append(Message(sender=given.me, parts=told, at_s=(yield Now())))
            else:
                yield Send(node, told)
