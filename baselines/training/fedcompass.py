"""FedCompass: clients are told how many local steps to take, so that those of a group arrive nearly together.

Li et al., 2024, "FedCompass: Efficient Cross-Silo Federated Learning on Heterogeneous Client Devices using a Computing
Power Aware Scheduler" (ICLR; arXiv:2309.14675).

Algorithm: the server keeps seconds a step for each client. All begin with ``most`` steps, and who comes for the first
time is added at once. A client that has come is put into
1. the group whose expected arrival leaves it the most steps within [``least``, ``most``];
2. else a new group, with as many steps as let it arrive when the fastest client of a later group will have taken
   ``most`` of them after that group's latest arrival, and at least ``least``;
3. with no group there, a new one with ``most`` steps.
A group is aggregated when all of it is there, or at its latest arrival (``late`` times the expected time): the server
adds α·(1 + staleness)^−a/n of each displacement. Who comes later is buffered for the next aggregation, and goes on.
Cost: a model and a number of steps down, a model up, for each arrival.
Limits: clients of a group wait for each other; the steps differ, so that fast clients move further.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from paceline.baselines.training.federated_averaging import FederatedAveraging

from paceline import technique
from paceline.families.training.api.objective import (
    SERVER,
    Array,
    Given,
    Now,
    Receive,
    Report,
    Run,
    Send,
    Sizes,
)

CLOSE = 0.01
"""Of a step: who would come that much later fits into a group."""
Came = tuple[Array, int]
"""A displacement, and the version that it began from."""


@dataclass(slots=True)
class Group:
    """Clients that should arrive together."""

    expected_s: float
    latest_s: float
    clients: list[int]
    arrived: dict[int, Came] = field(default_factory=dict)


@technique(
    name="fedcompass",
    family="training",
    implements=("objective",),
    summary="tells clients how many local steps to take, so that they arrive in groups",
    paper="fedcompass",
    properties={
        "equals": {
            "plain": "federated-averaging",
            "arguments": {
                "rate": 0.5,
                "least": 3,
                "most": 3,
                "alpha": 1.0,
                "single": False,
                "minibatch": 0,
                "together": True,
            },
            "rate": 0.5,
            "steps": 3,
        }
    },
    fidelity={
        "source": {
            "read": "code",
            "paper": "abstract; the text could not be had, and the code stands for it",
            "code": "github.com/APPFL/FedCompass: src/appfl/scheduler/compass_scheduler.py, "
            "src/appfl/aggregator/fedcompass_aggregator.py and fedasync_aggregator.py, examples/config of FedCompass, "
            "FedAvg and FedAsync, README.md",
        },
        "deviations": (
            "Numbers of steps are a tenth of the authors', since rounds are of convex problems.",
            "A step is plain; the authors' is Adam's.",
            "A group of which nobody has come at its latest arrival is dissolved, and its clients join the next "
            "aggregation; in the authors' code its timer does nothing, which comes to the same.",
        ),
        "constants": {
            "CLOSE": {"here": 0.01, "authors": "none: equal speeds do not occur there"},
            "least": {
                "here": 2,
                "authors": "20 (min_local_steps)",
                "official": 20,
                "source": "github.com/APPFL/FedCompass: examples/config/server_fedcompass.yaml",
                "differs": "numbers of steps are a tenth, since rounds are of convex problems",
            },
            "most": {
                "here": 10,
                "authors": "100 (max_local_steps), as many as FedAvg's and FedAsync's",
                "official": 100,
                "source": "github.com/APPFL/FedCompass: examples/config/server_fedcompass.yaml",
                "differs": "numbers of steps are a tenth, since rounds are of convex problems",
            },
            "momentum": {
                "here": 0.9,
                "authors": "0.9 (speed_momentum): the share of the newest time",
                "official": 0.9,
                "source": "github.com/APPFL/FedCompass: examples/config/server_fedcompass.yaml",
            },
            "late": {
                "here": 1.5,
                "authors": "1.5 (latest_time_factor)",
                "official": 1.5,
                "source": "github.com/APPFL/FedCompass: examples/config/server_fedcompass.yaml",
            },
            "alpha": {
                "here": 0.9,
                "authors": "0.9",
                "official": 0.9,
                "source": "github.com/APPFL/FedCompass: examples/config/server_fedcompass.yaml",
            },
            "ageing": {
                "here": 0.5,
                "authors": "0.5 in the example, whose sign makes old displacements count for more; here for less",
                "official": 0.5,
                "source": "github.com/APPFL/FedCompass: examples/config/server_fedcompass.yaml",
            },
            "rate": {"here": 0.5, "authors": "by experiment; in units of 1/L here"},
            "minibatch": {
                "here": 0,
                "authors": "64; 0 takes all samples",
                "official": 64,
                "source": "github.com/APPFL/FedCompass: examples/config/server_fedcompass.yaml",
                "differs": "gradients are of all samples, since problems are convex and small",
            },
            "single": {"here": True, "authors": "single precision"},
        },
        "checked_by": (
            "tests/unit/test_objective_techniques.py::test_reductions_are_equal_iterate_by_iterate",
            "tests/unit/test_objective_techniques.py::test_fedcompass_gives_slow_clients_fewer_steps",
            "tests/unit/test_objective_techniques.py::test_fedcompass_waits_for_nobody_at_first",
        ),
    },
)
class FedCompass(FederatedAveraging):  # type: ignore[misc]  # mypy reads baselines under another name
    """Schedule local steps by speed."""

    def __init__(
        self,
        together: bool = False,
        *,
        least: int = 2,
        most: int = 10,
        momentum: float = 0.9,
        late: float = 1.5,
        alpha: float = 0.9,
        ageing: float = 0.5,
        rate: float = 0.5,
        minibatch: int = 0,
        single: bool = True,
    ) -> None:
        super().__init__(rate=rate, minibatch=minibatch, single=single)
        self.least, self.most, self.momentum, self.late = least, most, momentum, late
        self.alpha, self.ageing, self.together = alpha, ageing, together
        self.groups: list[Group] = []
        self.step_s: dict[int, float] = {}
        """Seconds a step, by client."""
        self.steps: dict[int, int] = {}
        self.begun_s: dict[int, float] = {}

    def sizes(self, given: Given) -> Sizes:
        """Return the size of a model up, and of one with a number of steps down."""
        size = given.dim * 8 * np.dtype(self.dtype).itemsize
        return Sizes(clients=(size,), server=(size + 32,))

    def _learn(self, given: Given) -> Run:
        while True:
            message = yield Receive()
            model, steps = message.parts
            moved = yield from self.local(given, model.astype(np.float64), int(steps[0]))
            yield Send(SERVER, (moved.astype(self.dtype),))

    def _serve_all(self, given: Given) -> Run:
        self.model, self.version = given.start.copy(), 0
        self.seen = dict.fromkeys(given.neighbours, 0)
        self.behind: dict[int, Came] = {}
        for client in given.neighbours:
            self.steps[client], self.begun_s[client] = self.most, (yield Now())
            yield from self._go(client)
        if self.together:
            # the first arrivals are one group, as all later ones are where speeds and steps are equal
            self.groups.append(Group(0.0, math.inf, list(given.neighbours)))
        while True:
            until_s = min((g.latest_s for g in self.groups if g.latest_s < math.inf), default=None)
            message = yield Receive(until_s=until_s)
            now_s = yield Now()
            if message is None:
                due = [g for g in self.groups if g.latest_s <= now_s]
                for group in due:
                    yield from self._aggregate(given, group, now_s)
                continue
            yield from self._came(given, message.sender, message.parts[0].astype(np.float64), now_s)

    def _go(self, client: int) -> Run:
        yield Send(client, (self.model.astype(self.dtype), np.array([self.steps[client]], dtype=np.int32)))

    def _timed(self, client: int, now_s: float) -> None:
        took_s = (now_s - self.begun_s[client]) / self.steps[client]
        before = self.step_s.get(client, took_s)
        self.step_s[client] = (1.0 - self.momentum) * before + self.momentum * took_s

    def _came(self, given: Given, client: int, moved: Array, now_s: float) -> Run:
        first = client not in self.step_s
        self._timed(client, now_s)
        came = (moved, self.seen[client])
        group = next((g for g in self.groups if client in g.clients), None)
        if group is None:
            if first:
                yield from self._add(given, {client: came})
            else:  # its group was aggregated without it: it goes on, and counts in the next one
                self.behind[client] = came
            self._assign(client, now_s)
            yield from self._go(client)
            return
        group.clients.remove(client)
        group.arrived[client] = came
        if not group.clients:
            yield from self._aggregate(given, group, now_s)

    def _add(self, given: Given, told: dict[int, Came]) -> Run:
        """Add displacements, the less the older they are."""
        total = np.zeros(given.dim)
        for client, (moved, version) in sorted(told.items()):
            age = self.version - version
            total += self.alpha * (1 + age) ** -self.ageing * given.weights[client] * moved
        self.model, self.version = self.model + total, self.version + 1
        yield Report(self.model)

    def _aggregate(self, given: Given, group: Group, now_s: float) -> Run:
        """Take a group and whoever came too late for an earlier one; put its clients into new groups."""
        self.groups.remove(group)
        if not group.arrived:
            return
        yield from self._add(given, {**self.behind, **group.arrived})
        self.behind.clear()
        # the fastest first: it opens a group that the others can join
        for client in sorted(group.arrived, key=lambda c: (self.step_s[c], c)):
            self._assign(client, now_s)
            yield from self._go(client)

    def _assign(self, client: int, now_s: float) -> None:
        """Put a client that has come into a group, and say how many steps it takes."""
        self.seen[client], self.begun_s[client] = self.version, now_s
        fitting = []
        for group in self.groups:
            steps = math.floor((group.expected_s - now_s) / self.step_s[client] + CLOSE)
            if self.least <= steps <= self.most:
                fitting.append((steps, group))
        if fitting:
            # of groups alike the latest, as in the authors' code
            self.steps[client], group = max(reversed(fitting), key=lambda f: f[0])
            group.clients.append(client)
            return
        self.steps[client] = steps = self._steps_alone(client, now_s)
        took_s = steps * self.step_s[client]
        self.groups.append(Group(now_s + took_s, now_s + self.late * took_s, [client]))

    def _steps_alone(self, client: int, now_s: float) -> int:
        """Return the steps of a client that opens a group: so many that it meets a later one of the others."""
        meeting = []
        for group in self.groups:
            if now_s < group.latest_s:
                fastest_s = min(self.step_s[c] for c in (*group.clients, *group.arrived))
                again_s = group.latest_s + self.most * fastest_s
                steps = math.floor((again_s - now_s) / self.step_s[client])
                if steps <= self.most:
                    meeting.append(steps)
        return max(self.least, *meeting) if meeting else self.most
