"""``paceline new``: begin a suite or a technique from an example that already runs."""

from __future__ import annotations

from pathlib import Path

import click

from paceline.base.errors import UserError
from paceline.base.technique import NAME_RULE, valid_name

SUITE = """\
# yaml-language-server: $schema=./suite.schema.json   (paceline schema suite > suite.schema.json)
suite: collectives/{name}
version: 1
family: collectives
why: One sentence that says why anyone should care about this comparison.
workload: {{op: all_reduce, payload: gaussian}}
baseline: native
techniques: [native, ring]
matrix:                      # every combination is a point
  size_bytes: [4KiB, 1MiB]
  ranks: [2]
tiers:
  quick:                     # what a tier changes
    protocol: {{launches: 2, max_seconds: 0.3}}
protocol: {{launches: 5, max_seconds: 1}}
metrics:                     # compared with the baseline; a change inside the margin counts as none
  latency: {{margin: 0.02}}
  wire_bytes: {{margin: 0}}
"""

TECHNIQUE = '''\
"""All-reduce by gathering everything on every rank: the shortest thing that is correct.

Algorithm: every rank sends its buffer to every other rank and adds what it receives, in rank order.
Cost of an all-reduce of S bytes on n ranks: (n - 1) * S sent by each rank, in n - 1 messages.
Limits: memory and traffic grow with n.
"""

from __future__ import annotations

from torch import Tensor

from paceline import technique
from paceline.families.collectives.problem import Comm, Cost, Problem


@technique(
    name="{name}",
    family="collectives",
    implements=("all_reduce",),
    summary="every rank sends everything to everyone",
    properties={{"exact": True}},
)
class {class_name}:
    """All-to-all exchange of whole buffers."""

    def __init__(self, problem: Problem, comm: Comm) -> None:
        self.problem = problem
        self.comm = comm
        self.received = [problem.empty(problem.count) for _ in range(problem.world_size)]

    def run(self, buffer: Tensor) -> None:
        """Sum ``buffer`` [count] over ranks, in place."""
        rank, size = self.problem.rank, self.problem.world_size
        self.received[rank].copy_(buffer)
        others = [r for r in range(size) if r != rank]
        transfer = self.comm.start(
            sends=[(self.received[rank], r) for r in others],
            receives=[(self.received[r], r) for r in others],
        )
        transfer.wait()
        buffer.copy_(self.received[0])
        for part in self.received[1:]:
            buffer.add_(part)


def cost(problem: Problem) -> Cost:
    """Return what one call sends: the harness compares it with what it counts."""
    others = problem.world_size - 1
    sent = others * problem.count * problem.item_bytes
    return Cost(sent_bytes=sent, total_bytes=sent * problem.world_size, messages=others, steps=1 if others else 0)
'''


@click.group("new")
def new() -> None:
    """Begin a suite or a technique from an example that already runs."""


@new.command("suite")
@click.argument("name")
@click.option("--output", type=click.Path(path_type=Path), default=None, help="File [default: NAME.yaml].")
def new_suite(name: str, output: Path | None) -> None:
    """Write a suite that compares two techniques; edit it from there."""
    short = name.removeprefix("collectives/")
    _check(short)
    path = output or Path(f"{short}.yaml")
    _write(path, SUITE.format(name=short))
    click.echo(
        f"wrote {path}\n  check it: paceline validate {path}\n  run it:   paceline run {path} --tier quick"
    )


@new.command("technique")
@click.argument("name")
@click.option("--output", type=click.Path(path_type=Path), default=None, help="File [default: NAME.py].")
def new_technique(name: str, output: Path | None) -> None:
    """Write a technique that passes its conformance run; edit it from there."""
    _check(name)
    short = name.rpartition("/")[2]
    path = output or Path(f"{short.replace('-', '_')}.py")
    class_name = "".join(part.capitalize() for part in short.split("-"))
    if not class_name.isidentifier():
        class_name = f"Technique{class_name}"
    _write(path, TECHNIQUE.format(name=name, class_name=class_name))
    click.echo(f"wrote {path}\n  run it: paceline run collectives/all-reduce --tier quick --technique {path}")


def _check(name: str) -> None:
    if not valid_name(name):
        raise UserError(f"'{name}' is not a name", expected=NAME_RULE)


def _write(path: Path, text: str) -> None:
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise UserError("the file exists already", where=str(path), fix="choose another --output") from None
    except OSError as error:
        raise UserError(f"cannot write the file: {error.strerror}", where=str(path)) from None
