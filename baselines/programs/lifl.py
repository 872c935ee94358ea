"""LIFL's data plane on one host: updates stay in shared memory, and events say that they are there.

Qi et al., 2024, "LIFL: A Lightweight, Event-driven Serverless Platform for Federated Learning" (MLSys;
arXiv:2405.10968).

Algorithm: clients make their updates in shared segments and send the segments' numbers; aggregators add what comes, as
it comes, where it lies, and give the segments back; their sums are added on top (``aggregation``).
Cost: an update is written once and read once, and some bytes travel for it.
Limits: processes stand for functions, sockets of numbers for eBPF's sidecars; placing aggregators on hosts, reusing and
scaling them is not here.
"""

from __future__ import annotations

from paceline import technique
from paceline.families.programs.api.aggregation import command, expected
from paceline.families.programs.api.program import Program


@technique(
    name="lifl",
    family="programs",
    implements=("execute",),
    summary="averages clients' updates where they lie, in shared memory",
    paper="lifl",
    fidelity={
        "source": {
            "read": "paper",
            "paper": "abstract of arXiv:2405.10968",
            "code": "none read",
        },
        "deviations": (
            "Processes of one program stand for functions, and sockets that carry numbers for eBPF's maps.",
            "Aggregators are two, from the beginning to the end: nothing is placed, reused or scaled.",
        ),
        "constants": {"way": {"here": "shared-memory", "authors": "shared memory"}},
        "checked_by": (
            "tests/unit/test_aggregation.py::test_every_way_prints_the_mean",
            "tests/unit/test_aggregation.py::test_what_is_expected_is_the_closed_form",
        ),
    },
)
class Lifl:
    """Averages "UPDATES NUMBERS", the point's input.

    Args:
        way: How an update gets to an aggregator: shared-memory, sockets, broker.
    """

    def __init__(self, *, way: str = "shared-memory") -> None:
        self.way = way

    def program(self, given: str) -> Program:
        """Return the command; its check compares what it prints with the closed form."""
        words = given.split()
        updates, numbers = (int(words[0]), int(words[1])) if len(words) == 2 else (4, 1000)
        return Program(
            argv=command(self.way, updates, numbers),
            check=("grep", "-qx", expected(updates, numbers)),
        )
