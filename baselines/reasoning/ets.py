"""ETS: a tree of steps that keeps few paths: those that are promising, share their cache, and differ in what they say.

ETS: Efficient Tree Search for Inference-Time Scaling, 2025 (arXiv:2502.13575): REBASE's shares, and an integer
programme that chooses the leaves that stay.

Algorithm: as REBASE; but before the budget is shared, leaves S are chosen that maximise

    Σ_{i∈S} W_i / Σ_i W_i  −  λ_b · |nodes on S's paths| / |nodes on all paths|  +  λ_d · |clusters in S| / |clusters|

with W REBASE's shares, nodes the steps of the tree, and clusters the leaves that say the same. The budget is then
shared among S alone. Two constraints make it linear: a leaf takes all nodes of its path, and a cluster counts only
with one of its leaves. Nodes beneath which the same leaves lie are one variable.
Cost: as REBASE, on fewer paths; one integer programme a depth.
Limits: as REBASE; needs SciPy, whose solver HiGHS finds the best set exactly.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from paceline.baselines.reasoning.rebase import Leaf, reviewed, shares

from paceline import technique
from paceline.families.reasoning.api.requests import (
    Branch,
    Drop,
    Method,
    Plan,
    Question,
    Sample,
    Task,
    require,
)
from paceline.families.reasoning.api.votes import weighted_majority

SMALLEST = 1e-6
"""Taken off for every leaf that is kept without need."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Path:
    """A leaf with what the choice needs."""

    leaf: Leaf
    nodes: tuple[int, ...]
    """Names of the steps from the root on."""
    said: tuple[int, ...]
    """Tokens of the last step: its cluster."""


def chosen(
    weights: Sequence[float],
    paths: Sequence[Sequence[int]],
    clusters: Sequence[object],
    *,
    cache: float,
    coverage: float,
) -> list[int]:
    """Return the leaves that maximise weight less cache plus coverage, in their order; at least one.

    Args:
        weights: W of each leaf.
        paths: Nodes of each leaf's path.
        clusters: What each leaf says.
        cache: λ_b.
        coverage: λ_d.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp  # noqa: PLC0415 - not there on every machine
    from scipy.sparse import coo_array  # noqa: PLC0415 - not there on every machine

    num_nodes = len({node for path in paths for node in path})
    beneath: dict[int, tuple[int, ...]] = {}
    for i, path in enumerate(paths):
        for node in path:
            beneath[node] = (*beneath.get(node, ()), i)
    # nodes of the same leaves are kept together, those of one leaf with it
    numbers = Counter(beneath.values())
    bundles = {members: i for i, members in enumerate(m for m in numbers if len(m) > 1)}
    groups = {group: i for i, group in enumerate(dict.fromkeys(clusters))}
    leaves, first_node, first_group = len(paths), len(paths), len(paths) + len(bundles)
    size = first_group + len(groups)
    value = np.zeros(size)
    # Divided by the sum of W, so that λ_b and λ_d mean the same at every depth and budget.
    value[:leaves] = np.asarray(weights) / max(sum(weights), 1e-300) - SMALLEST
    value[:leaves] -= [cache * numbers[i,] / num_nodes for i in range(leaves)]
    value[first_node:first_group] = [-cache * numbers[members] / num_nodes for members in bundles]
    value[first_group:] = coverage / len(groups)
    # a leaf is at most each of its bundles; a cluster at most the sum of its leaves
    taken = [(i, first_node + place) for members, place in bundles.items() for i in members]
    rows = [row for row in range(len(taken)) for _ in range(2)]
    columns = [column for pair in taken for column in pair]
    entries = [1.0, -1.0] * len(taken)
    for group, place in groups.items():
        row = len(taken) + place
        members = [i for i, own in enumerate(clusters) if own == group]
        rows += [row] * (len(members) + 1)
        columns += [first_group + place, *members]
        entries += [1.0, *[-1.0] * len(members)]
    last = len(taken) + len(groups)
    rows += [last] * leaves
    columns += range(leaves)
    entries += [-1.0] * leaves
    upper = np.zeros(last + 1)
    upper[last] = -1.0  # one leaf stays
    matrix = coo_array((entries, (rows, columns)), shape=(last + 1, size)).tocsc()
    integral = np.zeros(size)
    # Given whole leaves, costs press bundles onto them and credit lifts clusters to 1: their optimum is whole too.
    integral[:leaves] = 1  # the others follow
    found = milp(
        -value,
        constraints=LinearConstraint(matrix, -np.inf, upper),
        integrality=integral,
        bounds=Bounds(0, 1),
    )
    if found.x is None:
        raise RuntimeError(f"no set of leaves was found: {found.message}")
    return [i for i in range(leaves) if found.x[i] > 0.5]


@technique(
    name="ets",
    family="reasoning",
    implements=("solve",),
    summary="REBASE on the leaves that an integer programme keeps, for reward, shared cache and variety",
    paper="ets",
    fidelity={
        "source": {
            "read": "code",
            "paper": "the programme by the header, not read for this card",
            "code": "github.com/SqueezeAILab/ETS: rebase.py, hype-parameters/ets_{16,64,256}_math500.yaml",
        },
        "deviations": (
            (
                "Leaves are one cluster when their last step has the same tokens; the authors cluster sentence "
                "embeddings of steps, by average linkage up to a cosine distance of 0.05."
            ),
            "The weight of coverage is 1; the authors' is 1.4 to 1.5, tuned for the width.",
            "The programme is solved by HiGHS, where the authors use CBC; both find the best set.",
            "The reward is REBASE's of this project.",
        ),
        "constants": {
            "width": {"here": None, "authors": "16, 64 or 256"},
            "temperature": {
                "here": 0.2,
                "authors": "0.2 (softmax_temperature), ets_64_math500.yaml",
                "official": 0.2,
                "source": "github.com/SqueezeAILab/ETS: hype-parameters/ets_64_math500.yaml",
            },
            "cache": {
                "here": 1.0,
                "authors": "1.0 (lambdac), in all three",
                "official": 1.0,
                "source": "github.com/SqueezeAILab/ETS: hype-parameters/ets_64_math500.yaml",
            },
            "coverage": {
                "here": 1.0,
                "authors": "1.5, 1.4 and 1.45 (lambdas), for 16, 64 and 256",
                "official": 1.4,
                "source": "github.com/SqueezeAILab/ETS: hype-parameters/ets_64_math500.yaml",
                "differs": "the weight of coverage is 1; theirs is tuned for the width (1.5 for 16, 1.45 for 256)",
            },
            "SMALLEST": {"here": 1e-06, "authors": "none"},
        },
        "checked_by": (
            "tests/unit/test_tree_search.py::test_the_programme_finds_what_trying_all_sets_finds",
            "tests/unit/test_tree_search.py::test_shares_use_up_the_budget_in_the_order_of_rewards",
        ),
    },
)
def ets(
    task: Task,
    *,
    width: int | None = None,
    temperature: float = 0.2,
    cache: float = 1.0,
    coverage: float = 1.0,
) -> Method:
    """Return the method.

    Args:
        task: The point.
        width: Traces at a time; None takes all that a question has.
        temperature: Of REBASE's shares.
        cache: λ_b, what all nodes of the tree would cost.
        coverage: λ_d, what all clusters would be worth.

    Raises:
        OptionError: A number is out of range.
    """
    count = task.samples if width is None else width
    require("width", count, least=1, most=task.samples)
    require("temperature", temperature, least=1e-6)
    require("cache", cache, least=0)
    require("coverage", coverage, least=0)

    def solve(question: Question) -> Plan:
        replies = yield [Sample(index=i, step=True) for i in range(count)]
        above: dict[int, tuple[int, ...]] = {reply.trace: () for reply in replies}
        done: list[Leaf] = []
        while True:
            said = {reply.trace: reply.tokens for reply in replies}
            leaves = yield from reviewed(replies)
            done += [leaf for leaf in leaves if leaf.ended]
            going = [
                Path(leaf=x, nodes=(*above[x.trace], x.trace), said=said[x.trace])
                for x in leaves
                if not x.ended
            ]
            budget = count - len(done)
            if not going or budget < 1:
                return weighted_majority((leaf.answer, leaf.reward) for leaf in done)
            # W of the objective is what REBASE would give all leaves; the budget itself is shared anew among those
            # that stay.
            weights = shares([p.leaf.reward for p in going], budget, temperature)
            best = chosen(
                weights, [p.nodes for p in going], [p.said for p in going], cache=cache, coverage=coverage
            )
            kept = [going[i] for i in best]
            numbers = shares([p.leaf.reward for p in kept], budget, temperature)
            parents = [p for p, n in zip(kept, numbers, strict=True) for _ in range(n)]
            branches = [Branch(trace=p.leaf.trace) for p in parents]
            # In one round, served in order: children copy their parents' cache before that is given up.
            replies = yield [*branches, *(Drop(trace=p.leaf.trace) for p in going)]
            replies = replies[: len(branches)]
            above = {r.trace: p.nodes for r, p in zip(replies, parents, strict=True)}

    return solve
