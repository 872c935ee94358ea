"""FedFix: the server takes what has arrived at set times, with weights that undo how often each client arrives.

Fraboni, Vidal, Kameni & Lorenzi, 2023, "A General Theory for Federated Optimization with Asynchronous and
Heterogeneous Clients Updates" (JMLR 24; arXiv:2206.10189).

Algorithm: every Δt the server adds Σ d_i·(x_i − x at which client i began) over the clients that have arrived, and
sends them the new x. A client that arrives every r_i-th time on average has d_i = r_i·p_i, so that each counts for p_i
in expectation (the paper's condition for the right optimum).
Cost: a model down and a model up for each arrival, of 32·dim bits each.
Limits: displacements are of older models; Δt trades waiting against age.
"""

from __future__ import annotations

import numpy as np
from paceline.baselines.training.federated_averaging import FederatedAveraging

from paceline import technique
from paceline.families.training.api.objective import Given, Now, Receive, Report, Run, Send


@technique(
    name="fedfix",
    family="training",
    implements=("objective",),
    summary="takes what has arrived at set times, with weights that undo how often each client arrives",
    paper="fedfix",
    properties={
        "equals": {
            "plain": "federated-averaging",
            "arguments": {"rate": 0.5, "local_steps": 3, "single": False, "every": 4.0, "minibatch": 0},
            "rate": 0.5,
            "steps": 3,
        }
    },
    fidelity={
        "source": {
            "read": "code",
            "paper": "abstract of arXiv:2206.10189; its theorems were not read, and the code stands for them",
            "code": "github.com/Accenture/Labs-Federated-Learning, branch asynchronous_FL: FL/clients_schedule.py, "
            "FL/clients_parameters.py, FL/server.py, FL/simu.py, list_exp_to_run.py, README.md",
        },
        "deviations": (
            "In how many intervals a client arrives is the mean of its arrivals so far; the authors' code knows its "
            "time and rounds it up to intervals; that mean comes to it where times are fixed.",
            "Clients take whole gradients.",
        ),
        "constants": {
            "every": {
                "here": 20.0,
                "authors": "0.2, 0.5 and 0.8 of the slowest client's time (list_exp_to_run.py)",
            },
            "rate": {"here": 0.5, "authors": "the best of a grid (lr_l); in units of 1/L here"},
            "local_steps": {
                "here": 10,
                "authors": "10 where FedFix takes part (n_SGD, list_exp_to_run.py)",
                "official": 10,
                "source": "github.com/Accenture/Labs-Federated-Learning: list_exp_to_run.py (branch asynchronous_FL)",
            },
            "minibatch": {
                "here": 0,
                "authors": "64 (B); 0 takes all samples",
                "official": 64,
                "source": "github.com/Accenture/Labs-Federated-Learning: list_exp_to_run.py (branch asynchronous_FL)",
                "differs": "gradients are of all samples, since problems are convex and small",
            },
            "unbiased": {
                "here": True,
                "authors": "weights of ceil(time / interval) times a client's share (FL/server.py)",
            },
            "single": {"here": True, "authors": "single precision is usual"},
        },
        "checked_by": (
            "tests/unit/test_objective_techniques.py::test_reductions_are_equal_iterate_by_iterate",
            "tests/unit/test_objective_techniques.py::test_fedfix_finds_the_optimum_that_equal_weights_miss",
        ),
    },
)
class FedFix(FederatedAveraging):  # type: ignore[misc]  # mypy reads baselines under another name
    """Aggregate at set times."""

    def __init__(
        self,
        *,
        every: float = 20.0,
        rate: float = 0.5,
        local_steps: int = 10,
        minibatch: int = 0,
        unbiased: bool = True,
        single: bool = True,
    ) -> None:
        super().__init__(rate=rate, local_steps=local_steps, minibatch=minibatch, single=single)
        self.every, self.unbiased = every, unbiased

    def _serve_all(self, given: Given) -> Run:
        model, begun = given.start.copy(), dict.fromkeys(given.neighbours, 0)
        rounds: dict[int, list[int]] = {c: [] for c in given.neighbours}
        for client in given.neighbours:
            yield Send(client, (model.astype(self.dtype),))
        number, begin_s = 0, (yield Now())
        while True:
            number += 1
            told: dict[int, np.ndarray] = {}
            while (message := (yield Receive(until_s=begin_s + number * self.every))) is not None:
                told[message.sender] = message.parts[0].astype(np.float64)
            for client in sorted(told):
                rounds[client].append(number - begun[client])
                often = float(np.mean(rounds[client])) if self.unbiased else 1.0
                model = model + often * given.weights[client] * told[client]
                begun[client] = number
            for client in sorted(told):
                yield Send(client, (model.astype(self.dtype),))
            yield Report(model)
