"""Which techniques of a block pass their gate: proven once in a run, and remembered in a launch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from paceline.families.collectives.api.problem import Problem
from paceline.families.collectives.core.candidate import make_instance
from paceline.families.collectives.core.gate import (
    LOSSY_COUNT,
    MIN_LOSSY_COUNT,
    OwnJudgement,
    Passed,
    gate,
    with_rule,
)
from paceline.families.collectives.core.planning.promises import Exactness
from paceline.families.collectives.core.timed_operation import TimedOperation
from paceline.worker.ranks.session import Block, Case, CaseError, Session


def gate_all(
    session: Session, block: Block, problem: Problem, operation: TimedOperation, own: OwnJudgement | None
) -> list[tuple[Case, Passed]]:
    """Return the techniques that pass their gate; the others get their results here.

    Args:
        session: The rank.
        block: Whose techniques are proven.
        problem: The point's.
        operation: What is done.
        own: The operation's own judgement, where it prescribes no result.
    """
    gated: list[tuple[Case, Passed]] = []
    for case in block.cases:
        try:
            gated.append((case, _gated(session, block, case, problem, operation, own)))
        except CaseError as error:
            session.emit_failure(block, case, error)
    return gated


def _gated(
    session: Session,
    block: Block,
    case: Case,
    problem: Problem,
    operation: TimedOperation,
    own: OwnJudgement | None,
) -> Passed:
    """Return the gate's result; where the same technique passed it before in this run, what was found then.

    Raises:
        CaseError: The technique was refused, does not support the point, or is wrong.
    """
    session.begin(block, case.label, "gate")
    loaded = session.loaded(case)
    assert loaded.info is not None
    lossy = not loaded.info.promised(Exactness).exact and own is None
    if lossy and problem.count < MIN_LOSSY_COUNT:
        reason = f"a lossy call on {problem.count} elements cannot be told from a wrong one"
        raise CaseError("unsupported", f"{reason}; it takes {MIN_LOSSY_COUNT}")
    payload = str(block.params["payload"])

    def make(point: Problem, comm: Any) -> Any:
        return loaded.factory(point, comm, **case.options)

    def prove() -> Passed:
        assert loaded.info is not None
        return gate(session, operation, problem, loaded.info, make, payload, own)

    # The gate proves at sizes, payloads and roots of its own: a sweep over these proves a technique once.
    fixed = {k: v for k, v in block.params.items() if k not in ("size_bytes", "payload", "root")}
    key = f"gate/{case.module}:{case.technique}/{sorted(case.options.items())}/{sorted(fixed.items())}"
    if key not in session.facts:
        make_instance(
            session, block, case, problem
        )  # support may depend on the size, which the gate does not see
    passed = _remembered(session, key, prove)
    if not lossy:
        return passed
    key = f"{key}/{payload}/{min(problem.count, LOSSY_COUNT)}"
    return _remembered(session, key, lambda: with_rule(session, operation, problem, passed, make, payload))


def _remembered(session: Session, key: str, prove: Callable[[], Passed]) -> Passed:
    """Return what ``prove`` found the first time in this run, or raise what it did in this launch."""
    if key not in session.facts:
        earlier = session.earlier_proof(key)
        try:
            session.facts[key] = Passed.read(earlier) if earlier is not None else prove()
            if earlier is None:
                session.tell_proof(key, asdict(session.facts[key]))
        except CaseError as error:
            # A refusal is kept too: the technique would fail again in every block of this launch, at the same cost.
            session.facts[key] = error
    found = session.facts[key]
    if isinstance(found, CaseError):
        raise found
    assert isinstance(found, Passed)
    return found
