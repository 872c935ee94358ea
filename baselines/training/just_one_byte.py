"""Just One Byte: fine-tuning in which a rank tells the others one byte for each slope of the loss that it measured.

Zelikman et al., "Just One Byte (per gradient): A Note on Low-Bandwidth Decentralized Language Model Finetuning Using
Shared Randomness" (2023); the estimate is SPSA's as in MeZO (Malladi et al., 2023, algorithm 1).

Algorithm (for each step; every rank has the same weights w and the same seed):
1. For each of Q probes a rank draws a direction z from (seed, step, rank, probe) and measures, on the probe's part of
   its sequences, the slope s = (L(w + ε·z) − L(w − ε·z)) / 2ε of their mean loss by two forward passes.
2. It sends every other rank one byte for each: the sign of s and the logarithm of |s| in seven bits.
3. Every rank draws all directions anew and takes the step w ← w − rate · mean of decode(byte)·z.

Code: 0 is nothing; m = 1 … 127 stand for 2^(−14 + (m − 1)/6), that is 6·10⁻⁵ to 128 with at most 6 % of error.
A byte stands for a probe: for one sequence where Q (``num_perturbations``) is as many as a rank has, else for the
mean of several; with the family's default, Q = 1, for all that a rank reads in a step.
The paper's byte is one sample's.
Cost of a step: Q·(n − 1) bytes in n − 1 messages. With Q = 1 that is 1/(4P) of a ring all-reduce of gradients at two
ranks, at n ranks n/(8P): a byte goes to each other rank by itself. Memory: w, a copy of it, z and their sum, 4P each
for P trained parameters; neither gradients nor an optimiser's state, nor activations for backward.
Joining: a new rank needs the initial weights and the log of bytes, n·Q for each step.
Limits: a step's error grows with P: many steps, or few trained parameters.
"""

from __future__ import annotations

import torch
from torch import Tensor

from paceline import technique
from paceline.families.training.api.fine_tuning.probing import ProbingReplica, probing_cost
from paceline.families.training.api.replica import Cost, Task

LEAST_EXPONENT = -14
STEPS_PER_OCTAVE = 6
LARGEST = 127
SIGN = 128


def encode(slopes: Tensor) -> Tensor:
    """Return one byte for each slope, (n, 1): the nearest magnitude on a logarithmic scale, and the sign above it."""
    # One octave below the least code: it rounds to code 0, and the logarithm of zero never occurs.
    octaves = slopes.abs().clamp(min=2.0 ** (LEAST_EXPONENT - 1)).log2() - LEAST_EXPONENT
    # Six codes an octave are at most 2^(1/12) − 1 = 5.9 % off, the slope_error that the technique promises.
    magnitude = (octaves * STEPS_PER_OCTAVE).round().add(1).clamp(0, LARGEST).to(torch.uint8)
    # Code 128, a negative zero, is never sent: no slope has two codes.
    negative = (slopes < 0) & (magnitude > 0)
    return (magnitude + SIGN * negative.to(torch.uint8))[:, None]


def decode(codes: Tensor) -> Tensor:
    """Return the slopes that bytes, (n, 1), stand for."""
    # float64 until the step, as every rank replays the log: the same operations give the same bits.
    magnitude = (codes[:, 0] & LARGEST).double()
    sign = torch.where(codes[:, 0] >= SIGN, -1.0, 1.0).double()
    return sign * torch.where(
        magnitude == 0, 0.0, torch.exp2((magnitude - 1) / STEPS_PER_OCTAVE + LEAST_EXPONENT)
    )


@technique(
    name="just-one-byte",
    family="training",
    implements=("fine_tune",),
    summary="one byte a slope: sign and seven bits of logarithm",
    paper="just-one-byte",
    properties={"exact": False, "replicas": "identical", "slope_error": 0.06},
    fidelity={
        "source": {
            "read": "code",
            "paper": "the abstract's method by the ledger, not read for this card",
            "code": "github.com/ezelikman/justonebyte: app.py, README.md",
        },
        "deviations": (
            (
                "Steps are synchronous, and who takes part is known to all; the authors' machines find each "
                "other."
            ),
            (
                "w is put back from a copy, as the authors do by default: adding and subtracting leaves rounding "
                "behind that differs on every rank."
            ),
            (
                "Every rank applies the byte that it sent; the authors' code computes the rounded value and sends "
                "the exact one."
            ),
            "A byte has six steps an octave; the authors' code has sixteen to a factor of e.",
            (
                "The step is the mean over probes; the authors' code divides their sum by the root of their "
                "number."
            ),
            "The rate of perturbations stays; the authors' code adapts it.",
        ),
        "constants": {
            "LEAST_EXPONENT": {"here": -14, "authors": "−127/16 in powers of e, app.py"},
            "STEPS_PER_OCTAVE": {
                "here": 6,
                "authors": "about 11: 16 to a factor of e, app.py",
                "official": 11.09,
                "source": "github.com/ezelikman/justonebyte: app.py: 16 to a factor of e",
                "differs": "a byte has six steps an octave",
            },
            "LARGEST": {
                "here": 127,
                "authors": "127, app.py",
                "official": 127,
                "source": "github.com/ezelikman/justonebyte: app.py",
            },
            "SIGN": {"here": 128, "authors": "the sign apart, app.py"},
        },
        "checked_by": (
            "tests/unit/test_fine_tuning.py::test_a_byte_keeps_the_sign_and_the_magnitude_within_half_a_step",
            "tests/unit/test_fine_tuning.py::test_a_slope_is_that_of_the_loss",
        ),
    },
)
class JustOneByte(ProbingReplica):
    """Share slopes as bytes."""

    code_bytes = 1

    def encode(self, slopes: Tensor) -> Tensor:
        """Return the bytes of slopes."""
        return encode(slopes)

    def decode(self, codes: Tensor) -> Tensor:
        """Return the slopes that bytes stand for."""
        return decode(codes)


def cost(task: Task) -> Cost:
    """Return the header's formula."""
    return probing_cost(task, JustOneByte.code_bytes)
