"""What gossip must prove: its outputs are mixtures of all inputs, with weights that are doubly stochastic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from paceline.families.collectives.core.gate import GateRunner, OwnJudgement
from paceline.families.collectives.core.oracle import Check, Workspace
from paceline.worker.ranks.session import Session


def prove(runner: GateRunner, seeds: tuple[int, ...]) -> None:
    """Check two calls of one instance at two sizes, on a draw for each seed."""
    for seed in seeds:
        for count in (257, 4099):
            problem = replace(runner.problem, count=count, seed=seed % (1 << 31))
            instance = runner.operation.instance(problem, payload="gaussian", seed=seed)
            workspace = Workspace(runner.operation, problem, [instance])
            collective, comm = runner.start(problem)
            for call in range(2):
                workspace.fill(0)
                runner.call(collective, comm, workspace)
                found = check(runner.session, workspace)
                runner.note(f"{count} elements, call {call + 1}", found.reason)


def check(session: Session, workspace: Workspace) -> Check:
    """Recover the mixing matrix of the last call over all ranks, who take part together, and judge it."""
    rows, residual = mixing_matrix(session, workspace)
    return check_mixing(rows, residual, workspace.problem.dtype)


def mixing_matrix(session: Session, workspace: Workspace) -> tuple[list[list[float]], float]:
    """Return the weights with which every rank mixed all ranks' inputs in the last call, and the worst residual."""
    expected = workspace.variants[workspace.current].expected[0]
    assert expected is not None
    contributions = [c.double() * workspace.scale for c in expected.contributions]
    weights, residual = mixing_weights(workspace.buffers[0], contributions)
    everyone = session.control.gather([weights, [residual]])
    return [r[0] for r in everyone], max(r[1][0] for r in everyone)


def mixing_weights(output: Tensor, contributions: Sequence[Tensor]) -> tuple[list[float], float]:
    """Recover the weights with which a rank's output mixes all ranks' inputs.

    Returns:
        The weights in rank order (least squares over all elements, by the normal equations: random inputs are far from
        dependent), and the relative residual that they leave.
    """
    inputs = [c.to(torch.float64).view(-1) for c in contributions]
    target = output.to(torch.float64).view(-1)
    # On the host, as the matrix is: it has a number a rank.
    products = torch.stack([x @ target for x in inputs]).cpu()
    weights = torch.linalg.solve(gram(inputs), products)
    rest = target.clone()
    for weight, values in zip(weights.tolist(), inputs, strict=True):
        rest.sub_(values, alpha=weight)
    return [float(w) for w in weights], float(rest.norm()) / max(float(target.norm()), 1e-300)


def gram(inputs: Sequence[Tensor]) -> Tensor:
    """Return the matrix of scalar products of some float64 vectors, on the host wherever they are."""
    size = len(inputs)
    matrix = torch.empty(size, size, dtype=torch.float64)
    for i in range(size):
        for j in range(i, size):
            matrix[i, j] = matrix[j, i] = inputs[i] @ inputs[j]
    return matrix


def check_mixing(rows: Sequence[Sequence[float]], residual: float, dtype: torch.dtype) -> Check:
    """Judge a mixing matrix: rows and columns sum to one, no weight is negative, and nothing is left unexplained.

    Args:
        rows: Weights of every rank, in rank order.
        residual: The largest relative residual over ranks.
        dtype: Working precision, which sets the tolerance.
    """
    size = len(rows)
    tolerance = 1e-4 if dtype in (torch.float32, torch.float64) else 3e-2
    if residual > tolerance:
        return Check(passed=False, reason=f"outputs are not mixtures of the inputs (residual {residual:.3g})")
    columns = [sum(row[i] for row in rows) for i in range(size)]
    for kind, sums in (("row", [sum(r) for r in rows]), ("column", columns)):
        worst = max(abs(s - 1) for s in sums)
        if worst > tolerance:
            return Check(passed=False, reason=f"a {kind} of mixing weights sums to {1 + worst:.4f}, not 1")
    if min(min(r) for r in rows) < -tolerance:
        return Check(passed=False, reason="a mixing weight is negative")
    if all(abs(rows[i][i] - 1) < tolerance for i in range(size)):
        return Check(passed=False, reason="nothing was mixed: every rank kept its own buffer")
    return Check(passed=True, relative_l2=residual)


JUDGEMENT = OwnJudgement(prove=prove, check=check)
