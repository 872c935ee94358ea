"""The gate: what a technique must prove at small sizes before any of its times is believed.

Every rank runs the same checks in the same order; a mistake on any rank is everyone's result. Seeds are drawn after the
technique was imported.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, get_args

import torch

from paceline.base.counting import number_of
from paceline.base.techniques.technique import Technique
from paceline.families.collectives.api.problem import Collective, Problem
from paceline.families.collectives.core.oracle import Check, LossyRule, Workspace
from paceline.families.collectives.core.planning.operation import same_everywhere
from paceline.families.collectives.core.planning.promises import ErrorKind, Exactness, Losses
from paceline.families.collectives.core.timed_operation import TimedOperation
from paceline.worker.communication.comm import Comm
from paceline.worker.ranks.session import CaseError, Session

NUM_SEEDS = 3
MAGNITUDES = (1e-3, 1.0, 1e3)
ODD_COUNTS = (1, 2, 3, 7, 17, 64, 257, 1000, 4099)
"""Elements per rank's share (sharded operations) or per buffer."""
# Whole chunks of a 12-bit index, and a short one behind them (``api.codecs.INDEX_CHUNK``).
LOSSY_COUNT = 6 * 4096 + 37
NUM_SEGMENTS = 8
SINGLE_CALL_DRAWS = 4
MIN_LOSSY_COUNT = 512
"""Fewer elements scatter too much for one lossy call to be told from a wrong one."""
ERROR_ON_OTHER_PAYLOADS = 1.0
"""A codec proves its error on gaussian inputs; what it does to others is a finding, up to that of sending nothing.

Heavy tails scatter so much that a few draws cannot set a closer limit; the cosine still has to hold.
"""
MOST_DECLARED_ERROR = 0.25
"""A technique may not declare more relative L2 error than this as its bound; sending nothing would have 1."""
ERROR_KINDS: tuple[ErrorKind, ...] = get_args(ErrorKind)

Make = Callable[[Problem, Comm], Collective]


@dataclass(frozen=True, slots=True, kw_only=True)
class Passed:
    """What a gate found out about a technique that passed it."""

    num_checks: int
    seeds: tuple[int, ...]
    lossy: LossyRule | None = None
    single_call_error: float = 0.0
    """Largest relative L2 error of one gated call (lossy techniques)."""
    mean_error: float = 0.0
    """Relative L2 error of the mean over the gate's repeated calls (lossy techniques)."""

    @classmethod
    def read(cls, facts: Mapping[str, Any]) -> Passed:
        """Take it from plain data, as an earlier launch told it."""
        rule = facts["lossy"]
        lossy = None if rule is None else LossyRule(**rule)
        return cls(**{**facts, "seeds": tuple(facts["seeds"]), "lossy": lossy})


class GateRunner:
    """Runs a technique on fresh problems of one operation and collects what the oracle says."""

    def __init__(self, session: Session, operation: TimedOperation, problem: Problem, make: Make) -> None:
        self.session = session
        self.operation = operation
        self.problem = problem
        self.make = make
        self.mistake: str | None = None
        self.num_checks = 0

    def note(self, where: str, reason: str | None) -> None:
        """Keep the first mistake of this rank."""
        self.num_checks += 1
        if reason is not None and self.mistake is None:
            self.mistake = f"{where}: {reason}"

    def start(self, problem: Problem) -> tuple[Collective, Comm]:
        """Make an instance of the technique with a communicator of its own."""
        # A new one, so that neither counts nor transfers of an earlier instance are taken for this one's.
        comm = self.session.comm()
        with self.session.guard.watch():
            return self.make(problem, comm), comm

    def call(self, collective: Collective, comm: Comm, workspace: Workspace) -> None:
        """Run one call inside the fences; a transfer that was not waited for is a mistake."""
        comm.begin_call()
        with self.session.guard.watch():
            collective.run(*workspace.buffers)
        self.session.device.synchronize()
        pending = comm.num_pending
        if pending:
            comm.drop_pending()
            self.note("call", f"{pending} transfers were not waited for")


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnJudgement:
    """How an operation is judged that prescribes no result; all ranks call its functions together."""

    prove: Callable[[GateRunner, tuple[int, ...]], None]
    """Notes the mistakes that a technique makes on problems drawn by some seeds."""
    check: Callable[[Session, Workspace], Check]
    """Judges the last call."""


def sized(operation: TimedOperation, problem: Problem, count: int) -> Problem:
    """Return the problem with another number of elements; sharded operations get ``count`` elements a share."""
    return replace(problem, count=count * problem.world_size if operation.spec.sharded else count)


def gate(
    session: Session,
    operation: TimedOperation,
    problem: Problem,
    info: Technique,
    make: Make,
    payload: str,
    own: OwnJudgement | None,
) -> Passed:
    """Prove a technique on one operation, dtype and number of ranks.

    Args:
        session: The rank.
        operation: What is done.
        problem: The point's problem; one with elements is proved at other numbers of them.
        info: What the technique says of itself.
        make: Makes an instance of it.
        payload: Distribution of the inputs.
        own: The operation's own judgement, where it prescribes no result.

    Raises:
        CaseError: It gave a wrong result on some rank.
    """
    runner = GateRunner(session, operation, problem, make)
    seeds = tuple(session.draw_seed("gate", info.name, i) for i in range(NUM_SEEDS))
    mean = 0.0
    if own is not None:
        own.prove(runner, seeds)
    elif info.promised(Exactness).exact:
        _gate_exact(runner, seeds, payload)
    else:
        mean = _gate_lossy(runner, seeds, info.promised(Losses))
    # All ranks run all checks and vote once: one that stopped early would leave the others waiting in the next call.
    mistake = session.control.first_problem(runner.mistake)
    if mistake is not None:
        raise CaseError("incorrect", mistake)
    return Passed(num_checks=runner.num_checks, seeds=seeds, mean_error=mean)


def with_rule(
    session: Session, operation: TimedOperation, problem: Problem, passed: Passed, make: Make, payload: str
) -> Passed:
    """Add the rule that timed calls of a lossy technique on one payload are held to: twice what single calls do.

    Timed calls start without state (``Collective.reset``), so a technique with error feedback is judged by the first
    call of fresh instances alone; that it makes good what it left out is what ``gate`` proves.

    Raises:
        CaseError: A result was not finite on some rank.
    """
    runner = GateRunner(session, operation, problem, make)
    point = sized(operation, problem, min(max(problem.count, MIN_LOSSY_COUNT), LOSSY_COUNT))
    errors: list[float] = []
    cosines: list[float] = []
    for draw in range(SINGLE_CALL_DRAWS):
        instance = operation.instance(point, payload=payload, seed=passed.seeds[-1] + draw)
        workspace = Workspace(operation, point, [instance])
        collective, comm = runner.start(point)
        workspace.fill(0)
        runner.call(collective, comm, workspace)
        # Any finite result passes here: this call sets the limits that later ones are held to.
        check = workspace.check(LossyRule(max_relative_l2=float("inf"), min_cosine=-1.0))
        runner.note(f"{point.count} elements of {payload}", check.reason)
        errors.append(check.relative_l2)
        cosines.append(check.cosine)
    mistake = session.control.first_problem(runner.mistake)
    if mistake is not None:
        raise CaseError("incorrect", mistake)
    single = max(errors)
    # A codec may be exact on gaussian inputs, and twice nothing would refuse the next call's rounding.
    least = 1e-6 if payload == "gaussian" else ERROR_ON_OTHER_PAYLOADS
    return replace(
        passed,
        num_checks=passed.num_checks + runner.num_checks,
        # Twice the worst of a few draws, and half the worst cosine: room for the scatter between draws.
        lossy=LossyRule(max_relative_l2=max(2.0 * single, least), min_cosine=0.5 * min(cosines)),
        single_call_error=single,
    )


def _gate_exact(runner: GateRunner, seeds: tuple[int, ...], payload: str) -> None:
    """Bit-exact on integers at odd sizes and every root; within the bound at three magnitudes."""
    problem, operation = runner.problem, runner.operation
    resizable = bool(problem.count)
    counts = ODD_COUNTS if resizable else (0,)
    for index, count in enumerate(counts):
        point = sized(operation, problem, count) if resizable else problem
        if operation.spec.rooted:
            # Roots take turns, since code for root 0 is often right for root 0 alone.
            point = replace(point, root=index % problem.world_size)
        # Sums of small integers are exact in every order, so bits can be compared.
        _one(runner, point, "integers" if resizable else payload, seeds[index % len(seeds)], 1.0)
    if not problem.dtype.is_floating_point or payload == "integers":
        return
    for index, seed in enumerate(seeds):
        point = sized(operation, problem, 257) if resizable else problem
        for magnitude in MAGNITUDES if resizable else (MAGNITUDES[index % len(MAGNITUDES)],):
            _one(runner, point, payload, seed, magnitude)


def _one(runner: GateRunner, problem: Problem, payload: str, seed: int, magnitude: float) -> None:
    """Check two calls of one instance: the second must not return what the first did."""
    # Two draws: a result that is remembered from the first call is wrong for the second.
    variants = [
        runner.operation.instance(problem, payload=payload, seed=seed + i, magnitude=magnitude)
        for i in range(2)
    ]
    workspace = Workspace(runner.operation, problem, variants)
    collective, comm = runner.start(problem)
    for variant in range(2):
        workspace.fill(variant)
        runner.call(collective, comm, workspace)
        check = workspace.check()
        where = (
            f"{problem.count} elements of {payload} × {magnitude:g}, root {problem.root}, call {variant + 1}"
        )
        runner.note(where, check.reason)


def _gate_lossy(runner: GateRunner, seeds: tuple[int, ...], promised: Losses) -> float:
    """Prove a codec on lossless payloads and on repeated calls; return the error of the mean over those calls."""
    if not runner.operation.spec.same_everywhere:
        raise CaseError("unsupported", f"lossy techniques are proved on {', '.join(same_everywhere())} only")
    if promised.error is None:
        raise CaseError("refused", f"a lossy technique declares error: one of {', '.join(ERROR_KINDS)}")
    for lossless in promised.lossless_on:
        _gate_lossless(runner, lossless, seeds[0])
    if not promised.lossless_on:
        raise CaseError("refused", "a lossy technique names at least one payload that it must carry exactly")
    calls = promised.convergence_calls
    errors, early, late = _converge(
        runner, sized(runner.operation, runner.problem, LOSSY_COUNT), seeds[1], calls
    )
    if promised.error == "bounded":
        limit = math.inf if promised.max_relative_l2 is None else promised.max_relative_l2
        if not 0 < limit <= MOST_DECLARED_ERROR:
            raise CaseError(
                "refused", f"error: bounded needs max_relative_l2 of at most {MOST_DECLARED_ERROR}"
            )
        worst = max(errors)
        reason = None if worst <= limit else f"relative error {worst:.4g} exceeds the declared {limit:.4g}"
        runner.note("gaussian", reason)
    else:
        _note_convergence(runner, early, late, calls)
    return max(late)


def _gate_lossless(runner: GateRunner, payload: str, seed: int) -> None:
    """A payload that the codec cannot damage must come out right, to the last element, at odd sizes.

    Scales are computed in floating point, so the bound is a few units of roundoff instead of bit equality.
    """
    for count in (1, 7, 257, 4099, LOSSY_COUNT):
        problem = sized(runner.operation, runner.problem, count)
        variants = [runner.operation.instance(problem, payload=payload, seed=seed + i) for i in range(2)]
        workspace = Workspace(runner.operation, problem, variants)
        collective, comm = runner.start(problem)
        for variant in range(2):
            workspace.fill(variant)
            runner.call(collective, comm, workspace)
            expected = variants[variant].expected[-1]
            assert expected is not None
            off = (workspace.buffers[-1].double() - expected.value.double()).abs().max().item()
            # Each rank's scale is rounded. In bfloat16, whose unit roundoff is 2⁻⁸, 0.02 is five of them.
            limit = 1e-5 * problem.world_size if problem.dtype == torch.float32 else 0.02 * problem.world_size
            reason = None if off <= limit else f"an element is off by {off:.3g}"
            runner.note(f"{count} elements of {payload}, call {variant + 1}", reason)
            # An instance with error feedback carries what it lost into the next draw; a lossless payload loses nothing.


def _converge(
    runner: GateRunner, problem: Problem, seed: int, calls: int
) -> tuple[list[float], list[float], list[float]]:
    """Repeat one call on the same input.

    Returns:
        The relative error of each single call; the relative error of the mean after an eighth of the calls, and after
        all, in each of ``NUM_SEGMENTS`` segments of the buffer.
    """
    instance = runner.operation.instance(problem, payload="gaussian", seed=seed)
    workspace = Workspace(runner.operation, problem, [instance])
    expected = instance.expected[-1]
    assert expected is not None
    reference = expected.value.double()
    total = torch.zeros_like(reference)
    collective, comm = runner.start(problem)
    errors: list[float] = []
    early: list[float] = []
    digests: list[str] = []
    for call in range(1, calls + 1):
        workspace.fill(0)
        runner.call(collective, comm, workspace)
        output = workspace.buffers[-1].double()
        errors.append(float((output - reference).norm() / reference.norm()))
        total += output
        if call == max(calls // 8, 1):
            # T/8, to which ``_note_convergence`` compares the end.
            early = _segment_errors(total / call, reference)
        # A digest copies the buffer to the host, so the first and the last call stand for all.
        if call in (1, calls):
            digests.append(workspace.fingerprint())
        if not torch.isfinite(output).all():
            runner.note(f"gaussian, call {call}", "the result holds NaN or infinity")
    everyone = runner.session.control.gather_text("/".join(digests))
    runner.note("gaussian", None if len(set(everyone)) == 1 else "ranks end with different results")
    return errors, early, _segment_errors(total / calls, reference)


def _segment_errors(mean: torch.Tensor, reference: torch.Tensor) -> list[float]:
    return [
        # A segment of the sum may be zero; its error then fails whatever is not zero too.
        float((m - r).norm() / r.norm().clamp(min=1e-30))
        for m, r in zip(mean.chunk(NUM_SEGMENTS), reference.chunk(NUM_SEGMENTS), strict=True)
    ]


def _note_convergence(runner: GateRunner, early: list[float], late: list[float], calls: int) -> None:
    """The mean of repeated calls must approach the truth in every segment.

    An unbiased codec's error falls as 1/√T and error feedback's as 1/T, so between T/8 and T it falls to 0.35 or less;
    any wrong weight of a rank leaves it where it was. The limits leave room for the scatter of one draw.
    """
    for segment, (before, after) in enumerate(zip(early, late, strict=True)):
        reason = None
        if after > 0.6 * before and after > 0.02:
            reason = f"the mean of {number_of(calls, 'call')} does not approach the truth ({before:.3g} → {after:.3g})"
        elif after > 0.5:
            reason = f"the mean of {number_of(calls, 'call')} is still {after:.3g} away from the truth"
        runner.note(f"gaussian, segment {segment}", reason)
