"""EControl: what compression left out is fed back a little at a time, beside differences of gradients.

Gao, Islamov and Stich, 2024, "EControl: Fast Distributed Optimization with Compression and Error Control"
(arXiv:2311.05645).

Algorithm (client i keeps h and e, zero at first; C keeps the k = ⌈``keep``·dim⌉ largest entries):
1. The client sends c = C(η·e + g − h), g being its gradient at x.
2. h ← h + c;  e ← e + g − h.
3. The server keeps the mean of all h, and x ← x − γ·that.
η is ``control``; by default δ / (3·√(1 − δ)·(1 + √(1 − δ))) with δ = k/dim, and 0 where nothing is left out. With η = 0
it is EF21; large errors are fed back at once where η is 1.
Cost of a step: 64·k bits up for each client, values and places; a model of 32·dim bits down.
Limits: everybody waits for everybody; the model travels down whole.
"""

from __future__ import annotations

import math

import numpy as np
from paceline.baselines.training.compressed_descent import CompressedDescent

from paceline import technique
from paceline.families.training.api.objective import Array, Given, Parts


@technique(
    name="econtrol",
    family="training",
    implements=("objective",),
    summary="compressed differences of gradients, and a controlled share of what compression left out",
    paper="econtrol",
    properties={
        "equals": {
            "plain": "gradient-descent",
            "arguments": {"keep": 1.0, "minibatch": 0, "rate": 0.5, "single": False},
            "rate": 0.5,
        }
    },
    fidelity={
        "source": {
            "read": "catalogue",
            "paper": "abstract of arXiv:2311.05645; the recursion of h and e from memory of later papers that cite it",
            "code": "none found",
        },
        "deviations": (
            "h begins at zero; a first exchange of whole gradients is left out.",
            "The default of ``control`` is that of the analysis, by the same sources.",
        ),
        "constants": {
            "control": {
                "here": None,
                "authors": "δ / (3·√(1 − δ)·(1 + √(1 − δ))) in the analysis, tuned in experiments",
            },
            "keep": {"here": 0.1, "authors": "10 % and less (Top-K)"},
            "rate": {"here": 0.5, "authors": "tuned; in units of 1/L here"},
            "minibatch": {"here": 0, "authors": "by experiment; 0 takes all samples"},
            "single": {"here": True, "authors": "single precision"},
        },
        "checked_by": (
            "tests/unit/test_compressed_descent.py::test_models_are_those_of_the_recursions",
            "tests/unit/test_compressed_descent.py::test_without_control_it_is_ef21",
        ),
    },
)
class EControl(CompressedDescent):  # type: ignore[misc]  # mypy reads baselines under another name
    """Send a difference and a share of the error."""

    def __init__(
        self,
        *,
        control: float | None = None,
        keep: float = 0.1,
        rate: float = 0.5,
        minibatch: int = 0,
        single: bool = True,
    ) -> None:
        super().__init__(memory="ef21", keep=keep, rate=rate, minibatch=minibatch, single=single)
        self.control = control
        self.error: Array = np.zeros(0)
        self.known: Array = np.zeros(0)

    def told(self, given: Given, slope: Array) -> Parts:
        """Return what a client sends of a gradient, and keep the error in mind."""
        parts: Parts = self.compressed(given, self.share(given) * self.error + slope - self.known)
        sent = np.zeros(given.dim)
        sent[parts[1]] = parts[0]
        self.known = self.known + sent
        self.error = self.error + slope - self.known
        return parts

    def share(self, given: Given) -> float:
        """Return η."""
        if self.control is not None:
            return self.control
        left = math.sqrt(1 - self.count(given) / given.dim)
        return (1 - left**2) / (3 * left * (1 + left)) if left else 0.0
