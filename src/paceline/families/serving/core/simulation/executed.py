"""Executes a closed trace on the real engine, step by step, and holds simulations against it.

All requests are there at the start, so that the same steps follow one another however long they take. The trace is
executed several times in turn with the profile of costs, and of each step the least time counts: what else the machine
did is left out of both. Two checks follow. Replayed with the very times of its steps, the simulator must give the same
makespan and the same times to first token, to rounding: anything else is a mistake of its logic. With the fitted costs
it is off by what the costs are off.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paceline.families.serving.api.costs import Piece
from paceline.families.serving.api.deploying import Given, InParts, OnePerDevice
from paceline.families.serving.api.layers import Shape
from paceline.families.serving.api.predicting import Configuration
from paceline.families.serving.core.engine.core import Engine
from paceline.families.serving.core.engine.model import Model
from paceline.families.serving.core.engine.stepper import Stepper
from paceline.families.serving.core.load.calls import Call
from paceline.families.serving.core.simulation.cluster import Cluster, Link
from paceline.families.serving.core.simulation.costs import Costs, Measured, fit
from paceline.families.serving.core.simulation.profiling import (
    Profile,
    TimedEngine,
    clock_of,
    one_thread,
    undisturbed,
)
from paceline.families.serving.core.simulation.sessions import at_start

REPEATS = 4
PROFILE_STEPS = 160
SAME = 1e-9
# Never used: one memory has nobody to send to.
LINK = Link(bytes_per_s=1e9)


@dataclass(frozen=True, slots=True, kw_only=True)
class Executed:
    """A trace on the real engine under one configuration."""

    configuration: Configuration
    steps: tuple[Measured, ...]
    makespan_s: float
    ttft_s: tuple[float, ...]
    """Of each call, in their order."""
    counters: Mapping[str, float]

    @property
    def mean_ttft_s(self) -> float:
        """Return the mean time to first token."""
        return sum(self.ttft_s) / len(self.ttft_s)


class _Trace:
    """A trace and the model that executes it under one configuration."""

    def __init__(
        self, calls: Sequence[Call], configuration: Configuration, model: Model, device: str
    ) -> None:
        self._calls, self._configuration = calls, configuration
        self._stepper = Stepper(model, configuration.block_size)
        self._clock, _ = clock_of(device)
        self.first: list[int] = []
        self.counters: dict[str, float] = {}

    def run(self) -> list[Measured]:
        """Execute it once."""
        c = self._configuration
        engine = Engine(
            InParts(),
            self._stepper,
            num_blocks=c.num_blocks,
            block_size=c.block_size,
            max_batch=c.max_batch,
            token_budget=c.token_budget,
        )
        timed = TimedEngine(engine, self._stepper, self._clock)
        for call in self._calls:
            assert isinstance(call.prompt, tuple)
            engine.submit(call.prompt, call.output_tokens)
        first: dict[int, int] = {}
        while engine.busy:
            for output in timed.step(0.0)[1]:
                # By step and not by time: which step brings it is the same in every execution, how long steps took is
                # settled later.
                first.setdefault(output.number, len(timed.steps) - 1)
        self.first = [first[n] for n in range(len(self._calls))]
        self.counters = {n: float(getattr(engine.counters, n)) for n in ("preemptions", "output_tokens")}
        return timed.steps

    def executed(self, runs: Sequence[Sequence[Measured]]) -> Executed:
        """Return what its runs say."""
        steps = undisturbed(runs)
        ends, now_s = [], 0.0
        for step in steps:
            now_s += step.seconds
            ends.append(now_s)
        return Executed(
            configuration=self._configuration,
            steps=tuple(steps),
            makespan_s=now_s,
            ttft_s=tuple(ends[place] for place in self.first),
            counters=self.counters,
        )


def measure(
    calls: Sequence[Call],
    configurations: Sequence[Configuration],
    model: Mapping[str, Any],
    *,
    device: str,
    seed: int,
    repeats: int = REPEATS,
) -> tuple[Costs, list[Executed]]:
    """Measure costs, and execute a trace under several configurations in the same minutes.

    Args:
        calls: The trace; their instants are not looked at.
        configurations: Of one block size.
        model: Sizes, seed and dtype.
        device: Where it computes.
        seed: Of the profile.
        repeats: Executions of everything.
    """
    longest = max(c.prompt_tokens + c.output_tokens for c in calls)
    largest = {
        "block_size": configurations[0].block_size,
        "num_blocks": max(c.num_blocks for c in configurations),
        "max_batch": max(c.max_batch for c in configurations),
        "token_budget": max(c.token_budget for c in configurations),
    }
    with one_thread():
        profile = Profile(model, largest, device=device, longest=longest, seed=seed)
        computing = Model(Shape.of(model), largest["num_blocks"] * largest["block_size"], device)
        traces = [_Trace(calls, c, computing, device) for c in configurations]
        profiled: list[list[Measured]] = []
        executed: list[list[list[Measured]]] = [[] for _ in traces]
        for _ in range(repeats):
            # In turns with the traces, so that a machine that slows down does so for table and truth alike.
            profiled.append(profile.run(PROFILE_STEPS))
            for trace, runs in zip(traces, executed, strict=True):
                runs.append(trace.run())
    costs = fit(undisturbed(profiled), kv_bytes_per_token=profile.kv_bytes, clock=profile.clock_name)
    return costs, [t.executed(runs) for t, runs in zip(traces, executed, strict=True)]


class ReplayedCosts:
    """In the place of a table: the times of the steps that were executed, in their order.

    Args:
        steps: Them.
    """

    kv_bytes_per_token = 0

    def __init__(self, steps: Sequence[Measured]) -> None:
        self._steps = list(reversed(steps))

    def seconds(self, pieces: Sequence[Piece], seen: int) -> float:
        """Return the next step's time.

        Raises:
            ValueError: The engine had another step here.
        """
        # Equal pieces mean the same logic: only then may the executed time stand for the simulated step.
        if not self._steps or self._steps[-1].pieces != tuple(pieces):
            raise ValueError("the simulator plans a step that the engine did not have")
        return self._steps.pop().seconds


def simulate(
    calls: Sequence[Call], configuration: Configuration, costs: Any, cluster: type[Cluster] = Cluster
) -> tuple[float, list[float]]:
    """Play a closed trace in virtual time; return its makespan and times to first token."""
    given = Given(
        devices=1,
        blocks_per_device=configuration.num_blocks,
        weight_blocks=0,
        block_size=configuration.block_size,
        max_batch=configuration.max_batch,
        token_budget=configuration.token_budget,
    )
    log = cluster(OnePerDevice(), given, costs, LINK).play([at_start(c) for c in calls])
    first: dict[int, float] = {}
    for token in log.tokens:
        first.setdefault(token.call, token.at_s)
    return max(t.at_s for t in log.tokens), [first[c.number] for c in calls]


def replay_problem(calls: Sequence[Call], executed: Executed, cluster: type[Cluster] = Cluster) -> str | None:
    """Say in what a simulation with the very times of the executed steps differs from these, or None."""
    try:
        makespan_s, ttft_s = simulate(calls, executed.configuration, ReplayedCosts(executed.steps), cluster)
    except ValueError as error:
        return str(error)
    # The same numbers summed in another order: rounding alone may differ.
    if abs(makespan_s - executed.makespan_s) > SAME * executed.makespan_s:
        return f"the simulated makespan is {makespan_s:.6f} s, and {executed.makespan_s:.6f} were executed"
    for call, (found, expected) in enumerate(zip(ttft_s, executed.ttft_s, strict=True)):
        if abs(found - expected) > SAME * executed.makespan_s:
            return f"the simulated first token of call {call} comes at {found:.6f} s, not at {expected:.6f}"
    return None


def errors(calls: Sequence[Call], executed: Executed, costs: Costs) -> dict[str, float]:
    """Return how far off the simulator is with fitted costs, relatively."""
    makespan_s, ttft_s = simulate(calls, executed.configuration, costs)
    return {
        "makespan": abs(makespan_s / executed.makespan_s - 1.0),
        "ttft": abs(sum(ttft_s) / len(ttft_s) / executed.mean_ttft_s - 1.0),
    }
