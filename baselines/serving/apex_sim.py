"""APEX: what a configuration would take, from a simulation of every iteration over measured costs.

Lin, Kwon, Pineda and Paravecino, 2024, "APEX: An Extensible and Dynamism-Aware Simulator for Automated Parallel
Execution in LLM Serving" (arXiv:2411.17651): its iteration-level batching and its profiles of operators.

Algorithm: keep a queue, the requests that run with their tokens and blocks, and a clock; in each iteration give every
request that decodes a token, taking memory away from the latest admitted where it ends; fill the rest of the budget
with parts of prompts, running ones first; admit from the queue while places, memory and budget are left; add to the
clock what the table says of such a step. Do so for every configuration and take the one with the least makespan.
Cost: O(iterations · requests) operations and no device.
Limits: lengths of answers are known, as in the paper's traces; what a step costs beyond the table's names is not there.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass

from paceline import technique
from paceline.families.serving.api.predicting import Asked, Configuration, Counts, Predicted, StepCosts


@dataclass(slots=True, kw_only=True)
class _Simulated:
    """A request in the simulation."""

    number: int
    wanted: int
    tokens: int
    """Of its prompt and its answer so far."""
    answered: int = 0
    computed: int = 0
    blocks: int = 0


@technique(
    name="apex-sim",
    family="serving",
    implements=("predict",),
    paper="apex-sim",
    summary="every iteration is simulated over measured costs",
    fidelity={
        "source": {
            "read": "code",
            "paper": "the abstract's method by the ledger, not read for this card",
            "code": "github.com/microsoft/apex_plus: apex_plus/simulator/simulator.py",
        },
        "deviations": (
            (
                "The engine has one device, whose plans are its batch, budget and memory; the paper composes "
                "operators' times into those of parallel plans over several."
            ),
            (
                "Prompts are computed in parts, as the engine does; the authors' simulator takes whole prompts, "
                "up to 65536 tokens a step."
            ),
            (
                "Who lost its memory is computed again, in the order of arrival; the authors' simulator takes it "
                "back before anyone new, at the cost of one token."
            ),
            "Energy is not predicted.",
        ),
        "constants": {},
        "checked_by": (
            "tests/unit/test_simulation.py::test_replayed_with_its_own_steps_the_simulator_is_the_engine",
            "tests/unit/test_simulation.py::test_apex_goes_through_the_engines_own_steps",
        ),
    },
)
class Apex:
    """Simulates iterations."""

    def predict(self, trace: Sequence[Asked], configuration: Configuration, costs: StepCosts) -> Predicted:
        """Return what serving the trace would take."""
        run = _Run(trace, configuration)
        now_s, first = 0.0, [0.0] * len(trace)
        steps = computed = 0
        while run.waiting or run.running:
            # Taken before anybody is admitted or preempted, as the table's steps were measured: its "seen" is what the
            # scheduler was shown.
            seen = len(run.waiting) + len(run.running)
            work = run.iteration()
            # `computed` is still the context before the step here: `advance` moves it on only once the step has its
            # time.
            pieces = [(r.computed, n, r.computed + n == r.tokens) for r, n in work]
            now_s += costs.seconds(pieces, seen)
            steps += 1
            computed += sum(n for _, n in work)
            for request, count in work:
                # A preempted request keeps what it has answered, so its recomputed prompt does not set the first
                # token's time again.
                if run.advance(request, count) and request.answered == 1:
                    first[request.number] = now_s
        return Predicted(
            makespan_s=now_s,
            ttft_s=sum(first) / len(first),
            counts=Counts(steps=steps, computed_tokens=computed, preemptions=run.preemptions),
        )


class _Run:
    """The queue, the memory and the requests of one simulation."""

    def __init__(self, trace: Sequence[Asked], configuration: Configuration) -> None:
        self._set = configuration
        self.waiting = [
            _Simulated(number=n, wanted=a.output_tokens, tokens=a.prompt_tokens) for n, a in enumerate(trace)
        ]
        self.running: list[_Simulated] = []
        self._free = configuration.num_blocks
        self._budget = 0
        self.preemptions = 0

    def iteration(self) -> list[tuple[_Simulated, int]]:
        """Compose a step and take its memory."""
        self._budget, queue, before = self._set.token_budget, list(self.waiting), self.preemptions
        work: list[tuple[_Simulated, int]] = []
        # Over a copy, since preemption takes requests out of `running`. Decodes first, the latest admitted as victim:
        # the rule of the engine's scheduler, with whose counts these are compared.
        for request in [r for r in self.running if r.tokens - r.computed == 1]:
            while request in self.running and not self._take(request, 1, work):
                if not self._make_room(work):
                    return work
        for request in self.running:
            if request.tokens - request.computed > 1:
                self._take(request, min(request.tokens - request.computed, self._budget), work)
        for request in queue:  # nobody, in a step that has taken memory away
            full = len(self.running) >= self._set.max_batch or self.preemptions > before
            if full or not self._take(request, min(request.tokens, self._budget), work):
                break
            self.waiting.remove(request)
            self.running.append(request)
        return work

    def _take(self, request: _Simulated, count: int, work: list[tuple[_Simulated, int]]) -> bool:
        """Put tokens into the step if budget and memory allow."""
        needed = -(-(request.computed + count) // self._set.block_size) - request.blocks
        if not 0 < count <= self._budget or needed > self._free:
            return False
        self._budget -= count
        self._free -= needed
        request.blocks += needed
        work.append((request, count))
        return True

    def _make_room(self, work: Sequence[tuple[_Simulated, int]]) -> bool:
        """Take the memory of the latest admitted away that is not in the step; it waits again, in order of arrival."""
        there = {id(r) for r, _ in work}
        for victim in reversed(self.running):
            # The engine refuses a step that computes a request and preempts it.
            if id(victim) in there:
                continue
            self.running.remove(victim)
            self._free += victim.blocks
            victim.blocks = victim.computed = 0
            self.preemptions += 1
            # The engine shows waiting requests by number, so a victim goes ahead of all that arrived after it.
            insort(self.waiting, victim, key=lambda r: r.number)
            return True
        return False

    def advance(self, request: _Simulated, count: int) -> bool:
        """Take in what a step has computed; return whether a token of the answer came."""
        request.computed += count
        if request.computed < request.tokens:
            return False
        # The new token's own keys and values are not there yet, which makes the next step one of one token: a decode.
        request.tokens += 1
        request.answered += 1
        if request.answered == request.wanted:
            self.running.remove(request)
            self._free += request.blocks
        return True
