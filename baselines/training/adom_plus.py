"""ADOM+: accelerated gradients in rounds, and gossip of which an inner loop makes a good average.

Kovalev et al., 2021, "Lower Bounds and Optimal Algorithms for Smooth and Strongly Convex Decentralized Optimization
Over Time-Varying Networks" (arXiv:2106.04469), on a graph that stays as it is.

Algorithm: a node keeps x, y, z, a slower copy of each (index f) and an error m. W is gossip, I − Laplacian / its
largest eigenvalue, T times in a row with ``inner_loop`` (multi-consensus): T = ⌈χ·ln 2⌉, after which χ = 2 is what is
left of the graph's condition χ, the largest over the least positive eigenvalue. In every round
    x_g = τ₁·x + (1 − τ₁)·x_f, and likewise y_g, z_g by σ₁;  q = ∇f_i(x_g) − ν·x_g;
    x⁺ = x + ηα(x_g − x⁺) − η(q − y⁺)  and  y⁺ = y + θβ(q − y⁺) − θ((y_g + z_g)/ν + x⁺), solved together;
    z⁺ = z + γδ(z_g − z) − (I − W)(γ/ν·(y_g + z_g) + m),  m⁺ = W(γ/ν·(y_g + z_g) + m);
    x_f = x_g + τ₂(x⁺ − x),  y_f = y_g + σ₂(y⁺ − y),  z_f = z_g − (I − W)(y_g + z_g)/2.
Constants: τ₂ = √(μ/L), τ₁ = 1/(1/τ₂ + ½), σ₂ = τ₂/(16χ), σ₁ = 1/(1/σ₂ + ½), η = 1/(L·τ₂), α = ν = μ/2, β = 1/(2L),
θ = ν/(4σ₂), γ = ν/(14·σ₂·χ²), δ = 1/(17L).
Cost of a round: T messages of two vectors, 64·dim bits and a number, from every node to each neighbour.
Limits: everybody waits for neighbours T times in every round.
"""

from __future__ import annotations

import math

import numpy as np

from paceline import technique
from paceline.families.training.api.objective import (
    Array,
    Given,
    Gradient,
    Receive,
    Report,
    Run,
    Send,
    Sizes,
    UnsupportedError,
)


@technique(
    name="adom-plus",
    family="training",
    implements=("objective",),
    summary="accelerated gradients in rounds, each with an inner loop of gossip (multi-consensus)",
    properties={"server": False, "all_report": True},
)
class AdomPlus:
    """One gradient, then gossip."""

    def __init__(self, *, inner_loop: bool = True, single: bool = True) -> None:
        self.inner_loop, self.dtype = inner_loop, np.float32 if single else np.float64
        self.early: dict[tuple[int, int], Array] = {}
        self.sent = 0

    def sizes(self, given: Given) -> Sizes:
        """Return the size of two vectors with their number."""
        if given.convexity <= 0.0:
            raise UnsupportedError("its constants need an objective that is strongly convex")
        return Sizes(clients=(given.dim * 16 * np.dtype(self.dtype).itemsize + 32,))

    def run(self, given: Given) -> Run:
        """Be one node."""
        smooth, tau_2 = given.smoothness, math.sqrt(given.convexity / given.smoothness)
        chi = given.facts["laplacian_top"] / given.facts["laplacian_gap"]
        loops = math.ceil(chi * math.log(2)) if self.inner_loop else 1
        chi = 2.0 if loops > 1 else chi
        nu = alpha = given.convexity / 2
        sigma_2 = tau_2 / (16 * chi)
        tau_1, sigma_1 = 1 / (1 / tau_2 + 0.5), 1 / (1 / sigma_2 + 0.5)
        eta, beta, delta = 1 / (smooth * tau_2), 1 / (2 * smooth), 1 / (17 * smooth)
        theta, gamma = nu / (4 * sigma_2), nu / (14 * sigma_2 * chi**2)
        x = x_f = given.start.copy()
        y = y_f = z = z_f = m = np.zeros(given.dim)
        while True:
            x_g = tau_1 * x + (1 - tau_1) * x_f
            y_g, z_g = sigma_1 * y + (1 - sigma_1) * y_f, sigma_1 * z + (1 - sigma_1) * z_f
            q = (yield Gradient(x_g)) - nu * x_g
            # x⁺ = ahead + pull·y⁺, put into the equation of y⁺
            ahead = (x + eta * alpha * x_g - eta * q) / (1 + eta * alpha)
            pull = eta / (1 + eta * alpha)
            right = y + theta * beta * q - theta / nu * (y_g + z_g) - theta * ahead
            new_y = right / (1 + theta * beta + theta * pull)
            new_x = ahead + pull * new_y
            error = gamma / nu * (y_g + z_g) + m
            mixed = yield from self._gossip(given, np.stack([error, y_g + z_g]), loops)
            z, m = z + gamma * delta * (z_g - z) - (error - mixed[0]), mixed[0]
            x_f, y_f = x_g + tau_2 * (new_x - x), y_g + sigma_2 * (new_y - y)
            z_f = z_g - (y_g + z_g - mixed[1]) / 2
            x, y = new_x, new_y
            yield Report(x)

    def _gossip(self, given: Given, own: Array, loops: int) -> Run:
        """Return what is left of two vectors, [2, dim], after some rounds of gossip."""
        for _ in range(loops):
            told = own.astype(self.dtype)
            for other in given.neighbours:
                yield Send(other, (told, np.array([self.sent], dtype=np.int32)))
            while any((other, self.sent) not in self.early for other in given.neighbours):
                message = yield Receive()
                self.early[message.sender, int(message.parts[1][0])] = message.parts[0]
            # of what both ends know, so that sums over nodes stay as they are
            rounded = told.astype(np.float64)
            theirs = [self.early.pop((other, self.sent)).astype(np.float64) for other in given.neighbours]
            own = (
                own
                - sum((rounded - their for their in theirs), np.zeros_like(own))
                / given.facts["laplacian_top"]
            )
            self.sent += 1
        return own
