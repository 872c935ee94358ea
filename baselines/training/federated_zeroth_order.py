"""FedZO: clients estimate gradients from values along random directions, and a server averages their local steps.

Fang et al., 2022, "Communication-Efficient Stochastic Zeroth-Order Optimization for Federated Learning".

Algorithm: in each local step a client asks for f_i at x and at x + μ·u for ``directions`` orthonormal random u, and
steps along dim/directions · Σ (f_i(x + μu) − f_i(x))/μ · u; the server averages models.
Cost of a round: local_steps · (directions + 1) values for each client; a model down and one up, of 32·dim bits each.
Limits: every step asks anew; what was asked before is thrown away.
"""

from __future__ import annotations

import numpy as np
from paceline.baselines.training.federated_averaging import FederatedAveraging

from paceline import technique
from paceline.families.training.api.objective import SERVER, Array, Given, Receive, Run, Send, Value


@technique(
    name="federated-zeroth-order",
    family="training",
    implements=("objective",),
    summary="federated averaging along gradients that are estimated from values in random directions",
    properties={"by_values": True},
)
class FederatedZerothOrder(FederatedAveraging):  # type: ignore[misc]  # mypy reads baselines under another name
    """Estimate gradients by differences of values."""

    def __init__(
        self,
        *,
        rate: float = 0.5,
        local_steps: int = 10,
        directions: int = 10,
        distance: float = 0.005,
        single: bool = True,
    ) -> None:
        super().__init__(rate=rate, local_steps=local_steps, single=single)
        self.directions, self.distance = directions, distance

    def _learn(self, given: Given) -> Run:
        rng = np.random.default_rng(given.own_seed)
        while True:
            begin = (yield Receive()).parts[0].astype(np.float64)
            own = begin.copy()
            for _ in range(self.local_steps):
                slope = yield from self._estimate(given, own, rng)
                own = own - self.rate / given.smoothness * slope
            yield Send(SERVER, ((own - begin).astype(self.dtype),))

    def _estimate(self, given: Given, at: Array, rng: np.random.Generator) -> Run:
        count = min(self.directions, given.dim)
        turned, _ = np.linalg.qr(rng.standard_normal((given.dim, count)))
        here, slope = (yield Value(at)), np.zeros(given.dim)
        for direction in turned.T:
            there = yield Value(at + self.distance * direction)
            slope += (there - here) / self.distance * direction
        return slope * given.dim / count
