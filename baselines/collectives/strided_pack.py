"""Canonical strided packing: any nest of strided types becomes one strided block, packed by one copy.

Pearson et al., "TEMPI: An Interposed MPI Library with a Canonical Representation of CUDA-aware Datatypes",
HPDC 2021, arXiv 2012.14363, section 4 (canonical form) and 5 (packing).

Algorithm:
1. Describe the data as a nest of types: planes of blocks of elements.
2. Bring it into its canonical form: merge levels that continue each other, drop levels of one element; what is
   left is a start and (count, stride) pairs.
3. Pack by one strided copy over that form, send the packed buffer, and unpack it by one strided copy.

Cost: the packed elements, planes · num_blocks · block, in one message from each rank; two passes over them in memory.

Limits: data whose blocks are not equally spaced has no such form.
"""

from __future__ import annotations

from torch import Tensor

from paceline import technique
from paceline.families.collectives.api.datatypes import Contiguous, Vector, canonical
from paceline.families.collectives.api.problem import Comm, Cost, Problem
from paceline.families.collectives.api.strided import layout_of


@technique(
    name="strided-pack",
    family="collectives",
    implements=("strided_exchange",),
    summary="the canonical strided form, packed by one copy",
    paper="tempi",
    properties={"exact": True},
    fidelity={
        "source": {
            "read": "code",
            "paper": "sections 4 and 5 by the header, not read for this card",
            "code": "github.com/cwpearson/tempi: src/internal/types.cpp",
        },
        "deviations": (
            "A vectorised copy of the tensor library stands for a chosen GPU kernel.",
            "No model chooses between ways of packing, since a CPU has one.",
            (
                "Levels are merged and dropped in one pass over a nest of known shape; the authors repeat four "
                "rewrites of a tree of MPI types until none applies, and sort levels by stride."
            ),
        ),
        "constants": {},
        "checked_by": ("tests/conformance/test_conformance.py::test_a_technique_conforms",),
    },
)
class StridedPack:
    """Pack, exchange with the neighbours, unpack."""

    def __init__(self, problem: Problem, comm: Comm) -> None:
        self.problem = problem
        self.comm = comm
        layout = layout_of(problem)
        block = Contiguous(count=layout.block)
        plane = Vector(count=layout.num_blocks, stride=layout.stride, of=block)
        # Once, untimed: the form depends on the type alone, as when a library commits a type (TEMPI, section 4).
        self.form = canonical(Vector(count=layout.planes, stride=layout.plane_stride, of=plane))
        self.outgoing = problem.empty(*self.form.counts)
        self.incoming = problem.empty(*self.form.counts)

    def run(self, source: Tensor, target: Tensor) -> None:
        """Send the blocks of ``source`` to the next rank and write the previous rank's into ``target``."""
        rank, size, form = self.problem.rank, self.problem.world_size, self.form
        with self.comm.span("pack"):
            self.outgoing.copy_(source.as_strided(form.counts, form.strides, form.start))
        received = self.outgoing
        if size > 1:
            self.comm.exchange(self.outgoing, (rank + 1) % size, self.incoming, (rank - 1) % size)
            received = self.incoming
        with self.comm.span("unpack"):
            # Writes blocks only: the gaps of the target must keep what they hold.
            target.as_strided(form.counts, form.strides, form.start).copy_(received)


def cost(problem: Problem) -> Cost:
    """Return the closed forms of the header."""
    n, size = problem.world_size, layout_of(problem).packed * problem.item_bytes
    if n == 1:
        return Cost(sent_bytes=0, messages=0, total_bytes=0, steps=0)
    return Cost(sent_bytes=size, messages=1, total_bytes=size * n, steps=1)
