"""Judges a technique's run when it has ended: what it saw, what it sent, what its weights are worth.

Everything here can take a number away, and nothing can make one: each function raises for a run that must not count.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from paceline.base.counting import number_of
from paceline.base.families.family import off_formula
from paceline.base.techniques.options import taken_by
from paceline.families.training.api.absence import Absence
from paceline.families.training.api.replica import Cost, Replica
from paceline.families.training.core.data.setting import Setting
from paceline.families.training.core.loop.carried import tells_techniques_apart
from paceline.families.training.core.loop.traffic import CLAIMED
from paceline.families.training.core.loop.trained import Trained
from paceline.families.training.core.planning.promises import Training
from paceline.families.training.core.proofs import oracle
from paceline.families.training.core.proofs.sandbox import Sandbox
from paceline.worker.network.namespace import overstated, unaccounted
from paceline.worker.ranks.session import Case, CaseError, Session

HARNESS_BYTES = 1 << 18
"""What the harness's own messages may take of the kernel's count of a run."""


def seeing(session: Session, trained: Trained, *, some_may_not: bool) -> list[int]:
    """Return the ranks that have a loss.

    Raises:
        CaseError: ``refused``: none has, or not all where each has sequences or positions of its own.
    """
    # Gathered, as every verdict here: ranks must agree on it, or some would wait for others that have given up.
    found = [r for r, row in enumerate(session.control.gather([[float(trained.sees_loss)]])) if row[0][0]]
    if not found:
        raise CaseError("refused", "forward_backward returned no loss on any rank")
    if len(found) < session.world_size and not some_may_not:
        missing = next(r for r in range(session.world_size) if r not in found)
        raise CaseError("refused", f"forward_backward returned no loss on rank {missing}")
    return found


def check_finite(session: Session, trained: Trained, seeing: list[int]) -> None:
    """Look for losses that are not finite, in steps in which a rank took part.

    Raises:
        CaseError: ``incorrect``, with the first such step and its ranks.
    """
    both = zip(trained.losses, trained.took, strict=True)
    own = next((step for step, (loss, took) in enumerate(both) if took and not math.isfinite(loss)), math.inf)
    rows = session.control.gather([[float(own)]])
    text = diverged({rank: rows[rank][0][0] for rank in seeing})
    if text is not None:
        raise CaseError("incorrect", text)


def diverged(first: Mapping[int, float]) -> str | None:
    """Say whose losses were the first that are not finite, by each rank's first such step; None where all are.

    Later ones say little: weights that are averaged with NaN are NaN on every rank.
    """
    step = min(first.values())
    if math.isinf(step):
        return None
    ranks = [rank for rank, own in first.items() if own == step]
    if len(ranks) == 1:
        whose = f"rank {ranks[0]}'s loss is"
    elif len(ranks) == len(first):
        whose = f"the losses of all {number_of(len(ranks), 'rank is', 'ranks are')}"
    else:
        whose = f"the losses of ranks {', '.join(map(str, ranks[:-1]))} and {ranks[-1]} are"
    return f"diverged: {whose} not finite in step {step + 1:.0f}"


def losses(
    session: Session, case: Case, setting: Setting, trained: Trained, held_out: torch.Tensor
) -> tuple[list[float], bool]:
    """Return the held-out losses of all copies of the weights, and whether ranks always held the same ones.

    Raises:
        CaseError: ``incorrect``: replicas differ that should not, or nothing was learnt where that is required.
    """
    info = session.loaded(case).info
    assert info is not None
    if setting.absence is not None:
        # Replicas are compared next; a rank that was away would differ for a reason that the point asked for.
        lend(session, setting.absence, trained.evaluated, trained.weights)
    initial = setting.judge()
    # The first copy was taken before any step: a technique that ships other weights has not begun where others did.
    begun = all(
        torch.equal(a, b.detach().to(a))
        for a, b in zip(trained.weights[0], initial.parameters(), strict=True)
    )
    changed = session.control.first_problem(None if begun else "it changed the weights before the first step")
    if changed is not None:
        raise CaseError("refused", changed)
    equal = oracle.digests(session, trained.weights)
    if info.promised(Training).replicas == "identical" and not all(equal):
        first = trained.evaluated[equal.index(False)]
        raise CaseError("incorrect", f"ranks hold different weights after step {first}")
    # Equal weights are judged once, a part on each rank; weights that differ, in whole by their own rank.
    curve = oracle.losses(session, initial, trained.weights, held_out, shared=all(equal))
    if not oracle.learnt(curve) and (setting.require_convergence or not all(map(math.isfinite, curve))):
        raise CaseError("incorrect", nothing_learnt(curve))
    if setting.corpus.entropy_rate is not None:
        check_possible(curve[-1], setting.corpus.entropy_rate, held_out[:, 1:].numel())
    return curve, all(equal)


def lend(
    session: Session, absence: Absence, evaluated: Sequence[int], weights: list[list[torch.Tensor]]
) -> None:
    """Replace what the rank would have shipped while it was away by rank 0's weights: it has none of that time.

    Args:
        session: The rank.
        absence: Who is away when.
        evaluated: Steps that had been done at each copy of the weights.
        weights: The copies, which change on the rank that was away.
    """
    for number, done in enumerate(evaluated):
        # A copy after step d holds what step d − 1, counted from 0, has left; the untrained copy is everybody's.
        if not done or not absence.away(absence.rank, done - 1):
            continue
        for index, weight in enumerate(weights[number]):
            lent = (
                weight.detach().cpu().clone() if session.rank == 0 else torch.zeros_like(weight, device="cpu")
            )
            # A sum in which rank 0 alone is not zero: a broadcast with what control has.
            session.control.sum_in_place(lent)
            if session.rank == absence.rank:
                weights[number][index] = lent.to(weight)


def nothing_learnt(curve: list[float]) -> str:
    """Say that a held-out loss did not fall."""
    return f"nothing was learnt: held-out loss {curve[0]:.4g} → {curve[-1]:.4g} nats"


def check_possible(loss: float, entropy_rate: float | None, num_symbols: int) -> None:
    """Raise where a loss is lower than any model of the language could have.

    Six standard errors of a mean over so many symbols, whose surprise varies by about a nat, are left for the luck of
    the text.

    Raises:
        CaseError: ``incorrect``: the technique knows the text, or the evaluation is not one.
    """
    if entropy_rate is None:
        return
    least = entropy_rate - 6 / math.sqrt(num_symbols)
    if loss < least:
        text = f"a held-out loss of {loss:.4g} nats is below the language's {entropy_rate:.4g}"
        raise CaseError(
            "incorrect", f"{text}: no model that has not seen the text can have less than {least:.4g}"
        )


def held_to(params: Mapping[str, Any], setting: Setting, curve: Sequence[float], compared: int) -> str:
    """Say what a case was held to, and what it was not: the text that its record keeps.

    Args:
        params: Of the point.
        setting: The point's.
        curve: Held-out losses; none where nothing is trained.
        compared: Steps, passes or states that its proofs held against the harness's own.
    """
    if not curve:
        said = ["every loss is that of one process"]
    elif setting.require_convergence:
        said = ["held-out loss falls"]
    else:
        said = ["held-out loss was measured, not required to fall"]
    if compared:
        said.append(f"{compared} steps, passes or states were held against the harness's own")
    else:
        said.append("no step was held against anything")
    if params["proof"] == "all" and curve:
        said.append("runs repeat themselves and go on from what was saved")
    return "; ".join(said)


def uncounted(session: Session, sandbox: Sandbox, trained: Trained) -> str | None:
    """Say why the communicator does not know all bytes, or None when it does.

    Raises:
        CaseError: ``refused``: the kernel carried what neither the communicator nor the backend did, or less than the
            communicator counted.
    """
    if sandbox.library:
        return "PyTorch's own modules move them; only the kernel's counters can tell"
    carried = trained.carried
    rows = session.control.gather(
        [
            [
                float(trained.backend_calls),
                trained.sent_bytes,
                trained.messages,
                carried.data_bytes or 0.0,
                carried.around_bytes,
                carried.sent_again_bytes,
            ]
        ]
    )
    # A collective of the backend sends messages that Comm never sees; bytes are then absent, not zero.
    if any(rank[0][0] for rank in rows):
        return "the backend's own collective moves them; only the kernel's counters can tell"
    counted, messages, seen, beside, again = (sum(rank[0][i] for rank in rows) for i in range(1, 6))
    # Upper bound: headers, messages both ways and what TCP repeats are allowed for. More than that went past Comm.
    problem = unaccounted(seen + beside, counted, messages=2 * messages, fixed=HARNESS_BYTES + again)
    if problem is None and tells_techniques_apart(session):
        # Lower bound, where an interface is the technique's alone: counted bytes that nothing carried were not sent.
        problem = overstated(seen, counted)
    if problem is not None:
        raise CaseError("refused", problem)
    return None


def _counters(replica: Replica) -> int:
    """Return the bytes of the optimiser's counts of steps, one a tensor of parameters: torch's, and in no formula.

    They are nothing beside a large model's state, and a tenth of that of a module with two parameters.
    """
    counts = (state.get("step") for state in replica.optimizer.state.values())
    return sum(t.nbytes for t in counts if isinstance(t, torch.Tensor) and not t.dim())


def predicted(
    sandbox: Sandbox, case: Case, setting: Setting, metrics: dict[str, Any]
) -> dict[str, float] | None:
    """Return the technique's closed forms, averaged over steps; None where it has none.

    Raises:
        CaseError: The module has no ``cost`` function, or it gives something else than was counted, or what nobody
            counted.
    """
    # From the module of the replica's class, since a technique is one file.
    function = getattr(sys.modules[type(sandbox.replica).__module__], "cost", None)
    if function is None:
        raise CaseError("refused", "the technique's module defines no cost(task, **options)")
    with sandbox.watch():
        found = function(setting.priced(sandbox.replica.task), **taken_by(function, case.options))
    if found is None:
        return None
    if not isinstance(found, Cost):
        raise CaseError("refused", f"cost(task, **options) gave {type(found).__name__}, not a Cost or None")
    # Position tables are the model's and not the technique's, but lie among the buffers that are counted.
    tables = sum(buffer.untyped_storage().nbytes() for buffer in sandbox.replica.model.buffers())
    scratch = None if found.scratch_bytes is None else found.scratch_bytes + tables
    state = None if found.state_bytes is None else found.state_bytes + _counters(sandbox.replica)
    stated = {
        "wire_bytes": (found.sent_bytes, setting.steps),
        "peak_bytes": (found.peak_bytes, 1),
        "messages": (found.messages, setting.steps),
        "backend_bytes": (found.backend_bytes, setting.steps),
        "state_bytes": (state, 1),
        "scratch_bytes": (scratch, 1),
    }
    predicted = {name: total / over for name, (total, over) in stated.items() if total is not None}
    # A formula that nothing checked must not be shown beside one that was.
    unmeasured = [name for name in CLAIMED if name in predicted and name not in metrics]
    if unmeasured:
        raise CaseError("refused", f"its closed form states {unmeasured[0]}, which nobody could measure")
    off = off_formula({name: m["samples"][0] for name, m in metrics.items()}, predicted)
    if off is not None:
        raise CaseError("incorrect", off)
    return predicted
