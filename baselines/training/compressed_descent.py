"""Descent along gradients of which each client sends the largest entries alone, with or without a memory of the rest.

``memory``:
- ``none``: clients send C(g); C keeps the k = ⌈``keep``·dim⌉ largest entries. x ← x − γ·mean.
- ``error-feedback``: clients send C(e + g), e ← e + g − C(e + g). x ← x − γ·mean (Seide et al., 2014; Stich et al.,
  2018, "Sparsified SGD with Memory").
- ``ef21``: clients send c = C(g − h), h ← h + c; the server keeps the mean of all h, and x ← x − γ·that (Richtárik et
  al., 2021, "EF21: A New, Simpler, Theoretically Better, and Practically Faster Error Feedback").
Cost of a step: 64·k bits up for each client, values and places; a model of 32·dim bits down.
Limits: without a memory it ends where the largest entries cancel. Everybody waits for everybody.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import numpy.typing as npt

from paceline import technique
from paceline.families.training.api.objective import (
    SERVER,
    Array,
    Given,
    Gradient,
    Parts,
    Receive,
    Report,
    Run,
    Send,
    Sizes,
)

Memory = Literal["none", "error-feedback", "ef21"]


def largest(vector: Array, count: int) -> npt.NDArray[np.int64]:
    """Return the places of the entries that are largest in size, in order."""
    return np.sort(np.argsort(-np.abs(vector), kind="stable")[:count])


@technique(
    name="compressed-descent",
    family="training",
    implements=("objective",),
    summary="clients send the largest entries of their gradients, with or without a memory of the rest",
    properties={
        "equals": {
            "plain": "gradient-descent",
            "arguments": {"keep": 1.0, "minibatch": 0, "rate": 0.5, "single": False},
            "rate": 0.5,
        }
    },
)
class CompressedDescent:
    """Compress, and step along the mean."""

    def __init__(
        self,
        *,
        memory: Memory = "none",
        keep: float = 0.1,
        rate: float = 0.5,
        minibatch: int = 0,
        single: bool = True,
    ) -> None:
        self.memory, self.keep, self.rate, self.minibatch = memory, keep, rate, minibatch
        self.dtype = np.float32 if single else np.float64
        self.error: Array = np.zeros(0)
        self.known: Array = np.zeros(0)

    def sizes(self, given: Given) -> Sizes:
        """Return the size of k values with places, and of a model."""
        value = 8 * np.dtype(self.dtype).itemsize
        return Sizes(clients=(self.count(given) * (value + 32),), server=(given.dim * value,))

    def count(self, given: Given) -> int:
        """Return k."""
        return max(1, math.ceil(self.keep * given.dim))

    def run(self, given: Given) -> Run:
        """Serve, or answer."""
        return self._serve(given) if given.me == SERVER else self._answer(given)

    def _answer(self, given: Given) -> Run:
        self.error, self.known = np.zeros(given.dim), np.zeros(given.dim)
        while True:
            message = yield Receive()
            slope = yield Gradient(message.parts[0].astype(np.float64), self.minibatch)
            yield Send(SERVER, self.told(given, slope))

    def told(self, given: Given, slope: Array) -> Parts:
        """Return what a client sends of a gradient, and keep the rest in mind."""
        whole = slope + self.error if self.memory == "error-feedback" else slope - self.known
        parts = self.compressed(given, whole)
        sent = np.zeros(given.dim)
        sent[parts[1]] = parts[0]
        if self.memory == "error-feedback":
            self.error = whole - sent
        elif self.memory == "ef21":
            self.known += sent
        return parts

    def compressed(self, given: Given, vector: Array) -> Parts:
        """Return the largest entries of a vector, as they are sent, and their places."""
        places = largest(vector, self.count(given))
        return vector[places].astype(self.dtype), places.astype(np.int32)

    def _serve(self, given: Given) -> Run:
        at, mean = given.start.copy(), np.zeros(given.dim)
        while True:
            for client in given.neighbours:
                yield Send(client, (at.astype(self.dtype),))
            told: dict[int, Parts] = {}
            while len(told) < len(given.neighbours):
                message = yield Receive()
                told[message.sender] = message.parts
            if not self.keeps_mean:
                mean = np.zeros(given.dim)
            # in the clients' order: sums of floating-point numbers depend on it
            for client in given.neighbours:
                values, places = told[client]
                mean[places] += given.weights[client] * values.astype(np.float64)
            at = at - self.rate / given.smoothness * mean
            yield Report(at)

    @property
    def keeps_mean(self) -> bool:
        """Whether what clients send is a difference to what the server already has."""
        return self.memory == "ef21"
