"""FlexDeMo: full exchange inside a group of ranks, fast-moving components of the momentum between groups.

From et al., "DeToNATION: Decoupled Torch Network-Aware Training on Interlinked Online Nodes" (2025), with its
schemes of replication.

Algorithm (groups of g ranks, as many shares of the parameters; f: ``rate_factor``):
1. A reduce-scatter inside the group leaves the group's mean gradient of share i on its rank i.
2. That rank's momentum takes it in; chosen components go to the ranks that own share i in other groups, and are taken
   out of the momentum. ``dct``: the largest cosine coefficients with their places (see ``demo``). ``random`` and
   ``striding``: elements at places that all know, so that more of them fit into the same bytes.
3. Each rank steps its share by f·η times the signs of what all groups sent; an all-gather inside the group completes
   the weights.

Cost of a step: a ring all-reduce of 4P in the group, and (n/g − 1) messages of a share's components, which are the same
bytes in all schemes. The messages alone leave the group: with k = 64, (n/g − 1)·P·7/128 bytes of each group, where a
ring over all ranks sends 2·(n − 1)/n · 4P. Memory: m, 4P/g.
Limits: g is lowered to its greatest common divisor with n. With n = g, two ranks by default, there is one group: all
bytes are those of a full ring, and nothing leaves the group. As with ``demo``, no option makes it synchronous training:
weights move by signs, with one group of all ranks too.
"""

from __future__ import annotations

from typing import Literal

from paceline import technique
from paceline.families.training.api.decoupled import DecoupledMomentum, Scheme, decoupled_cost
from paceline.families.training.api.replica import Comm, Cost, Task


@technique(
    name="flexdemo",
    family="training",
    implements=("data_parallel",),
    summary="full exchange inside groups, chosen components of the momentum between them",
    paper="detonation",
    properties={"exact": False, "replicas": "identical"},
    fidelity={
        "source": {
            "read": "code",
            "paper": "its schemes of replication by the header, not read for this card",
            "code": (
                "github.com/schneiderkamplab/DeToNATION: detonation/repl/demo_replicator.py, "
                "detonation/repl/random_replicator.py"
            ),
        },
        "deviations": (
            "Parameters are whole on every rank between steps; the paper shards them inside the group.",
            (
                "One kind of network stands for both; where groups are two, ``bisection_bytes`` are what goes "
                "between them."
            ),
            (
                "What groups sent for a coefficient is added up, and not its mean over those that sent it, unless "
                "``mean_over`` asks for that."
            ),
            (
                "``random`` draws elements; the authors' random replicator draws rows of a tensor and averages "
                "them over all groups."
            ),
            (
                "The newest version of the authors' replicator applies what was sent a step before; here a step "
                "waits for what it sends."
            ),
        ),
        "constants": {
            "group": {"here": 2, "authors": "the ranks of a node"},
            "k": {
                "here": 64,
                "authors": "32, demo_replicator.py",
                "official": 32,
                "source": "github.com/schneiderkamplab/DeToNATION: detonation/repl/demo_replicator.py",
                "differs": "64 coefficients of a chunk travel, since models are small",
            },
            "scheme": {"here": "dct", "authors": "DeMo's, DeToSGD.py"},
            "decay": {
                "here": 0.999,
                "authors": "0.999, demo_replicator.py",
                "official": 0.999,
                "source": "github.com/schneiderkamplab/DeToNATION: detonation/repl/demo_replicator.py",
            },
            "mean_over": {"here": "ranks", "authors": "senders, as in DeMo"},
            "rate_factor": {"here": 1.0, "authors": "1: they tune the learning rate itself"},
        },
        "checked_by": (
            "tests/unit/test_compressed_steps.py::test_fast_components_leave_the_momentum_and_their_signs_move_the_weights",
            "tests/unit/test_traffic.py::test_components_leave_a_group_where_a_ring_sends_gradients_through",
        ),
    },
)
class FlexDeMo(DecoupledMomentum):
    """Groups of consecutive ranks."""

    def __init__(
        self,
        task: Task,
        comm: Comm,
        *,
        group: int = 2,
        k: int = 64,
        scheme: Scheme = "dct",
        decay: float = 0.999,
        rate_factor: float = 1.0,
        mean_over: Literal["ranks", "senders"] = "ranks",
    ) -> None:
        # Groups are consecutive ranks: with g ranks on a node the full exchange stays inside it.
        super().__init__(
            task,
            comm,
            group=group,
            k=k,
            scheme=scheme,
            decay=decay,
            rate_factor=rate_factor,
            mean_over=mean_over,
        )


def cost(
    task: Task,
    *,
    group: int,
    k: int,
    scheme: Scheme,
) -> Cost:
    """Return the header's formula for all steps."""
    return decoupled_cost(task, group=group, k=k, scheme=scheme)
