"""One technique on this rank: made, proved by every step of a script, and measured over the same steps.

It is proved with its messages, in modes drawn at random, on places that hold no sensible numbers before they are
written; and measured without them, so that ranks neither wait nor share a core with a peer's copying. What a step sends
is counted while it is measured and costs what the point's link takes for it.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from paceline.families.serving.api.distributing import Cache, Distributed, Left, Setting
from paceline.families.serving.api.layers import DTYPES, Shape, Turns, Weights
from paceline.families.serving.core.simulation.costs import Costs, Measured, fit
from paceline.families.serving.core.simulation.profiling import clock_of, kv_bytes_per_token
from paceline.families.serving.ops.distribute.promises import Replication
from paceline.families.serving.ops.distribute.script import Script, Scripted
from paceline.worker.communication.comm import Comm
from paceline.worker.ranks.session import Case, CaseError, Session

MOST_OFF: Mapping[str, float] = {"float32": 1e-5, "bfloat16": 2.0**-5, "float64": 1e-12}
"""Of what leaves the last layer, over its largest number, against float64."""
ORACLE = "a plain forward computation of every request in float64, without cache, ranks or blocks"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """What all techniques of a block stand on."""

    shape: Shape
    weights: Weights
    script: Script
    expected: Tensor
    """What must leave the last layer, (R, h) in float64, over all steps."""
    num_slots: int
    device: torch.device


@dataclass(frozen=True, slots=True, kw_only=True)
class Proved:
    """What a technique did while it was proved."""

    off: float
    moved_bytes: float
    held: float
    """Heads of tokens and layers that all ranks hold, over those that there are."""
    weights: float
    """Bytes of weights that all ranks took, over one model's."""
    checks: int


class Candidate:
    """A technique on this rank, on all ranks or on none.

    Args:
        session: Of the launch.
        case: The technique.
        ground: What it stands on.

    Raises:
        CaseError: It does not support the point, or cannot be made.
    """

    def __init__(self, session: Session, case: Case, ground: Ground) -> None:
        self.session, self.case, self.ground = session, case, ground
        loaded = session.loaded(case)
        assert loaded.info is not None
        self.replicated = loaded.info.promised(Replication).replicated
        self.comm: Comm = session.comm(traced=False)
        shape, device = ground.shape, ground.device
        self.cache = Cache(shape, ground.num_slots, DTYPES[shape.dtype], device)
        self.setting = Setting(
            rank=0 if self.replicated else session.rank,
            world_size=1 if self.replicated else session.world_size,
            shape=shape,
            weights=ground.weights,
            turns=Turns(shape, device),
            cache=self.cache,
        )

        def make() -> Distributed:
            with session.guard.watch():
                made: Distributed = loaded.factory(self.setting, self.comm, **case.options)
            return made

        self.made = session.on_all_ranks(make)
        self.modes = [str(mode) for mode in self.made.modes]
        self._times: list[list[list[float]]] = [[] for _ in self.modes]
        """By mode, of each repeat, seconds of each step."""
        self._sent: list[list[tuple[float, float]]] = [[] for _ in self.modes]

    @property
    def label(self) -> str:
        """Return the technique's name in the block."""
        return self.case.label

    def _step(self, step: Scripted, mode: int, *, proving: bool) -> Left:
        self.cache.begin(step.batch, proving=proving)
        with self.session.guard.watch():
            return self.made.step(step.batch, mode)

    @torch.inference_mode()
    def prove(self, seed: int) -> Proved:
        """Compute every step with the other ranks, in modes drawn at random, and judge what came.

        Raises:
            CaseError: Something else leaves the last layer, or some token's state is nobody's.
        """
        rng = random.Random(seed)
        expected, first, off = self.ground.expected, 0, 0.0
        problem: str | None = None
        given = torch.zeros(len(expected), dtype=torch.float64)
        for number, step in enumerate(self.ground.script.steps):
            left = self._step(step, rng.randrange(len(self.modes)), proving=True)
            if self.comm.num_pending:
                self.comm.drop_pending()
                problem = problem or f"transfers of step {number} were still in flight when it returned"
            places = {int(row): first + n for n, row in enumerate(step.batch.last_rows.tolist())}
            rows = left.rows.tolist()
            first += len(places)
            if left.states.shape != (len(rows), self.ground.shape.hidden) or not places.keys() >= set(rows):
                problem = problem or f"step {number}: {tuple(left.states.shape)} states for rows {rows}"
            elif rows:
                at = torch.tensor([places[row] for row in rows])
                given[at] = 1.0
                difference = left.states.double().cpu() - expected[at]
                off = max(off, float(torch.nan_to_num(difference.abs(), nan=torch.inf).max()))
        self.session.guard.check()
        return self._judged(off / float(expected.abs().max()), given, problem)

    def _judged(self, off: float, given: Tensor, problem: str | None) -> Proved:
        session, shape = self.session, self.ground.shape
        most = MOST_OFF[shape.dtype]
        if problem is None and not off <= most:
            problem = (
                f"states differ from a plain computation by {off:.3g} of the largest number; "
                f"{most:.3g} are allowed"
            )
        problem = session.control.first_problem(problem)
        if problem is not None:
            raise CaseError("incorrect", problem)
        session.control.sum_in_place(given)
        if not bool((given > 0).all()):
            raise CaseError("incorrect", f"{int((given == 0).sum())} wanted states are no rank's")
        count, used = self.cache.held()
        session.control.sum_in_place(used)
        rows = [[off, float(self.cache.moved_bytes), float(count), float(self.setting.taken_bytes)]]
        everyone = [rank[0] for rank in session.control.gather(rows)]
        weights = [w for n, w in self.ground.weights.items() if n not in ("embedding", "head", "norm")]
        whole = sum(w.numel() * w.element_size() for w in weights)
        slots = int((used > 0).sum())
        copies = session.world_size if self.replicated else 1  # each replica serves the same script here
        return Proved(
            off=max(rank[0] for rank in everyone),
            moved_bytes=sum(rank[1] for rank in everyone),
            held=sum(rank[2] for rank in everyone) / (copies * slots * shape.layers * shape.kv_heads),
            weights=sum(rank[3] for rank in everyone) / whole,
            checks=len(given),
        )

    @torch.inference_mode()
    def measure(self, mode: int) -> None:
        """Compute every step once in a mode, without messages, and note time and what would have been sent."""
        clock, _ = clock_of(self.ground.device.type)
        synchronize, counters = self.session.device.synchronize, self.comm.counters
        seconds: list[float] = []
        sent: list[tuple[float, float]] = []
        with self.comm.muted():
            for step in self.ground.script.steps:
                counters.reset()
                synchronize()
                begin = clock()
                self._step(step, mode, proving=False)
                synchronize()
                seconds.append(max(clock() - begin, 1) * 1e-9)
                sent.append((float(sum(counters.sent_bytes)), float(sum(counters.sent_messages))))
        self.session.guard.check()
        self.comm.drop_pending()
        self._times[mode].append(seconds)
        self._sent[mode] = sent

    def costs(self, link: Mapping[str, float]) -> list[tuple[Costs, dict[str, Any]]]:
        """Return what steps cost in each mode, and facts of it; the same on all ranks.

        A step takes what its slowest rank takes: the least time of its repeats, and of each message it sends the link's
        delay and its bytes over the link's rate.
        """
        found: list[tuple[Costs, dict[str, Any]]] = []
        steps = self.ground.script.steps
        for times, sent in zip(self._times, self._sent, strict=True):
            own = [[min(repeat[n] for repeat in times), *sent[n]] for n in range(len(steps))]
            everyone = self.session.control.gather(own)
            slowest = [
                max(rank[n][0] + rank[n][1] / link["rate"] + rank[n][2] * link["delay"] for rank in everyone)
                for n in range(len(steps))
            ]
            measured = [
                Measured(pieces=s.pieces, seconds=t, seen=0) for s, t in zip(steps, slowest, strict=True)
            ]
            tokens = sum(count for s in steps for _, count, _ in s.pieces)
            sums = [sum(rank[n][k] for rank in everyone for n in range(len(steps))) for k in range(3)]
            table = fit(
                measured,
                kv_bytes_per_token=kv_bytes_per_token(self.ground.shape),
                clock=clock_of(self.ground.device.type)[1],
            )
            facts = {"sent_per_token": sums[1] / tokens, "messages_per_step": sums[2] / len(steps)}
            facts["computed_share"] = sums[0] / (sum(slowest) * len(everyone))
            found.append((table, facts))
        return found
