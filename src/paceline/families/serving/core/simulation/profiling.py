"""Measures what steps cost on the real engine, by letting it compute steps of all kinds; torch's half of the costs.

On a CPU the clock is the thread's processor time: what else runs on the machine takes time but is not counted. On an
accelerator it is the monotonic clock from a step's begin until its tokens are there.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from paceline.families.serving.api.costs import Piece
from paceline.families.serving.api.deploying import InParts
from paceline.families.serving.api.layers import DTYPES, Shape
from paceline.families.serving.api.scheduling import Room, Step, View
from paceline.families.serving.core.engine.core import Engine, Output, Work
from paceline.families.serving.core.engine.model import Model
from paceline.families.serving.core.engine.stepper import Stepper
from paceline.families.serving.core.model_sizes import FIRST_TOKEN
from paceline.families.serving.core.simulation.costs import Measured

CPU_CLOCK = "processor time of the engine's thread"
WALL_CLOCK = "monotonic clock of the engine's process"
WARM_STEPS = 12
USUAL = 0.8
"""Share of the profile's steps that an ordinary scheduler plans."""
CHANGE = 0.1
"""How likely before each step the number of requests that are kept there changes."""


def kv_bytes_per_token(shape: Shape) -> int:
    """Return bytes of keys and values of one token in all layers."""
    return 2 * shape.layers * shape.kv_heads * shape.head_dim * DTYPES[shape.dtype].itemsize


def clock_of(device: str) -> tuple[Callable[[], int], str]:
    """Return the clock for a device, in nanoseconds, and its name."""
    return (time.thread_time_ns, CPU_CLOCK) if device == "cpu" else (time.perf_counter_ns, WALL_CLOCK)


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute on one thread, as the engine's own process does."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class Wander:
    """Plans steps of all kinds: any number of decodes, parts of prompts of any size, so that costs are told apart.

    Args:
        rng: Draws them.
    """

    shares_prefixes = False

    def __init__(self, rng: random.Random) -> None:
        self._rng, self._usual = rng, InParts()

    def plan(self, view: View) -> Step:
        """Draw a step; most are what a scheduler would plan, since a step costs less after its like."""
        # Ordinary steps for a realistic state of caches; the others vary one cost at a time, or the fit could not tell
        # them apart.
        if self._rng.random() < USUAL:
            return self._usual.plan(view)
        room = Room(view)
        kind = self._rng.random()
        decoding = [r for r in view.running if r.missing == 1]
        prompts = [r for r in (*view.running, *view.waiting) if r.missing > 1]
        if kind < 0.8 or not prompts:
            most = max(1, len(decoding))
            some = most if self._rng.random() < 0.4 else self._rng.randint(1, most)
            for request in self._rng.sample(decoding, min(some, len(decoding))):
                room.take(request, 1)
        # Decodes alone, prompts alone, and both: each cost has to be seen without the others.
        if kind > 0.35 or not room.step.tokens:
            for request in prompts[: self._rng.choice([1, 1, 1, 2, 3])]:
                most = min(request.missing, room.tokens)
                if most > 1:
                    room.take(request, most if self._rng.random() < 0.5 else self._rng.randint(2, most))
        if not room.step.tokens and view.running and prompts:  # no room for a prompt: somebody has to go
            room.preempt(view.running[-1])
        return room.step

    def served(self, tenant: str, prompt_tokens: int, output_tokens: int) -> None:
        """Take no account."""


def pieces_of(work: Sequence[Work]) -> tuple[Piece, ...]:
    """Return what the costs know of a step."""
    return tuple((p.begin, p.count, p.ends) for p in work)


class TimedEngine:
    """An engine of which every step is measured.

    Args:
        engine: It; its compute must be ``stepper``.
        stepper: Computes.
        clock: In nanoseconds.
    """

    def __init__(self, engine: Engine, stepper: Stepper, clock: Callable[[], int]) -> None:
        self.engine, self._stepper, self._clock = engine, stepper, clock
        self.steps: list[Measured] = []

    def step(self, now_s: float) -> tuple[float, list[Output]]:
        """Plan, compute and take in a step; return its seconds and tokens."""
        # Before planning, whose time grows with what the scheduler is shown.
        seen = self.engine.num_seen()
        begin = self._clock()
        work = self.engine.begin(now_s)
        pieces = pieces_of(work)
        outputs = self.engine.end(work, self._stepper(work)) if work else []
        seconds = max(self._clock() - begin, 1) * 1e-9
        if work:
            self.steps.append(Measured(pieces=pieces, seconds=seconds, seen=seen))
        return seconds, outputs


class Profile:
    """Steps of all kinds on a model of the same shape, the same ones in every ``run``.

    Args:
        model: Sizes, seed and dtype.
        engine: block_size, num_blocks, max_batch, token_budget: the largest that will be asked about.
        device: Where it computes.
        longest: Most tokens that a request will have.
        seed: Same seed, same steps.
    """

    def __init__(
        self, model: Mapping[str, Any], engine: Mapping[str, int], *, device: str, longest: int, seed: int
    ) -> None:
        self._shape, self._settings, self._seed = Shape.of(model), dict(engine), seed
        room = engine["num_blocks"] * engine["block_size"]
        self._longest = min(longest, self._shape.max_context, room)
        self._clock, self.clock_name = clock_of(device)
        self._stepper = Stepper(Model(self._shape, room, device), engine["block_size"])
        # First calls load kernels and take memory, which later steps do not.
        self.run(WARM_STEPS)

    @property
    def kv_bytes(self) -> int:
        """Return bytes of keys and values of one token."""
        return kv_bytes_per_token(self._shape)

    def run(self, num_steps: int) -> list[Measured]:
        """Measure so many steps, beginning anew."""
        # Anew in every run: the least time of a step over runs needs the same steps.
        rng = random.Random(self._seed)
        timed = TimedEngine(Engine(Wander(rng), self._stepper, **self._settings), self._stepper, self._clock)
        for _ in keep_busy(timed.engine, rng, self._settings, longest=self._longest, vocab=self._shape.vocab):
            if len(timed.steps) >= num_steps:
                break
            timed.step(0.0)
        return timed.steps


def keep_busy(
    engine: Engine, rng: random.Random, settings: Mapping[str, int], *, longest: int, vocab: int
) -> Iterator[None]:
    """Before each step, submit requests of all lengths, so that as many are there as are wanted for a while."""
    wanted = 1
    while True:
        if rng.random() < CHANGE:
            wanted = rng.randint(1, 2 * settings["max_batch"])
        there = engine.submitted - engine.counters.finished
        for _ in range(wanted - there):
            whole = rng.randint(4, longest)
            answer = max(1, min(round(whole * rng.random()), whole - 2))
            prompt = [rng.randrange(FIRST_TOKEN, vocab) for _ in range(whole - answer)]
            engine.submit(prompt, answer)
        yield


def undisturbed(runs: Sequence[Sequence[Measured]]) -> list[Measured]:
    """Return the least time of each step over runs of the same steps: what else the machine did takes longer.

    Raises:
        ValueError: The runs are not of the same steps.
    """
    # A minimum over different steps would be of none of them.
    if len({tuple((m.pieces, m.seen) for m in run) for run in runs}) != 1:
        raise ValueError("runs of other steps have no least time")
    return [
        Measured(pieces=same[0].pieces, seen=same[0].seen, seconds=min(m.seconds for m in same))
        for same in zip(*runs, strict=True)
    ]
