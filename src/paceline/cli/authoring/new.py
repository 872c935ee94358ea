"""``paceline new``: begin a suite or a technique from an example of its family that already runs."""

from __future__ import annotations

from pathlib import Path

import click

from paceline.base.errors import UserError, expected_one_of
from paceline.base.families.operation import Operation
from paceline.base.techniques.technique import NAME_RULE, valid_name
from paceline.cli.authoring.starting import operation_named, text_for
from paceline.cli.options import Command
from paceline.spec.own.techniques import declared, suites_for
from paceline.workflows.conformance import points_of

EXAMPLES = Path(__file__).parent / "examples"
"""A suite and a technique of every family; NAME, ClassName and function_name stand for what is asked for."""
USUAL = "collectives"
SUITES = {
    "collectives": "collectives/all-reduce",
    "kernels": "kernels/add-rmsnorm",
    "programs": "programs/python-start",
    "reasoning": "reasoning/early-stopping",
    "serving": "serving/schedulers",
    "training": "training/data-parallel",
}
"""Where each family's example of a technique runs."""


def example_families() -> list[str]:
    """Return the families that have examples."""
    return sorted(path.stem for path in EXAMPLES.glob("*.yaml"))


def family_option(command: Command) -> Command:
    """Add ``--family NAME``."""
    return click.option(
        "--family",
        default=None,
        help="Its family [default: the one that NAME begins with, else collectives].",
    )(command)


@click.group("new")
def new() -> None:
    """Create a suite or a technique from a working example of its family."""


@new.command("suite")
@click.argument("name", metavar="[FAMILY/]NAME")
@family_option
@click.option("--output", type=click.Path(path_type=Path), default=None, help="File [default: NAME.yaml].")
def new_suite(name: str, family: str | None, output: Path | None) -> None:
    """Write a suite that compares two techniques of its family, as a starting point to edit."""
    family, short = _placed(name, family)
    if "/" in short:
        raise UserError(
            f"'{name}' begins with no family",
            expected=expected_one_of(name.partition("/")[0], example_families()),
            fix=f"paceline new suite {USUAL}/{short.rpartition('/')[2]}",
        )
    path = output or Path(f"{short}.yaml")
    text = (EXAMPLES / f"{family}.yaml").read_text(encoding="utf-8")
    _write(path, text.replace(f"{family}/NAME", f"{family}/{short}"))
    click.echo(
        f"wrote {path}\n  check it: paceline validate {path}\n  run it:   paceline run {path} --tier quick"
    )


@new.command("technique")
@click.argument("name", metavar="[FAMILY/]NAME")
@family_option
@click.option(
    "--op",
    "operation",
    default=None,
    metavar="[FAMILY/]OPERATION",
    help="What it implements [default: its family's example].",
)
@click.option("--output", type=click.Path(path_type=Path), default=None, help="File [default: NAME.py].")
def new_technique(name: str, family: str | None, operation: str | None, output: Path | None) -> None:
    """Write a technique that passes its family's conformance run, as a starting point to edit.

    NAME may contain an author and may begin with the family: my-lab/gather-add, kernels/my-lab/row-chunks.

    With --op the file says what `run` is given, with shapes and types, and computes the operation by PyTorch's
    operators, or as the shortest technique that is shipped does.
    """
    if operation is not None:
        family, short = _placed(name, family, usual=None)
        of_family, chosen = operation_named(operation, family or None)
        _write_technique(of_family, short, output, chosen)
        return
    family, short = _placed(name, family)
    _write_technique(family, short, output)


def _write_technique(
    family: str, short: str, output: Path | None, operation: Operation | None = None
) -> None:
    word = short.rpartition("/")[2].replace("-", "_")
    path = output or Path(f"{word}.py")
    class_name = "".join(part.capitalize() for part in word.split("_"))
    class_name = class_name if class_name.isidentifier() else f"Technique{class_name}"
    function_name = word if word.isidentifier() else f"technique_{word}"
    if operation is None:
        text = (EXAMPLES / f"{family}.py.txt").read_text(encoding="utf-8")
        for placeholder, value in (
            ("NAME", short),
            ("ClassName", class_name),
            ("function_name", function_name),
        ):
            text = text.replace(placeholder, value)
        suite: str | None = SUITES[family]
    else:
        text = text_for(family, operation, short, class_name, function_name)
        suite = None
    _write(path, text)
    if operation is not None:
        suite = next(iter(suites_for(declared(path)[0])), None)
    click.echo(f"wrote {path}")
    if operation is None or points_of(family, operation.name, brief=True):
        click.echo(f"  check it: paceline check {path}")
    if suite is not None:
        click.echo(f"  run it:   paceline run {suite} --tier quick --technique {path}")


def _placed(name: str, family: str | None, usual: str | None = USUAL) -> tuple[str, str]:
    """Return the family that is meant, and the name without it; nothing where none is and none is usual.

    Raises:
        UserError: The name is none, or the family does not exist, or the two contradict each other.
    """
    known = example_families()
    if family is not None and family not in known:
        raise UserError(
            f"unknown family '{family}'", where="--family", expected=expected_one_of(family, known)
        )
    first, slash, rest = name.partition("/")
    if not valid_name(rest if first in known and slash else name):
        raise UserError(f"'{name}' is not a name", expected=f"{NAME_RULE}; its family may stand before it")
    if not slash or first not in known:
        return family or usual or "", name
    if family not in (None, first):
        raise UserError(f"'{name}' is of {first}", where="--family", expected=first)
    return first, rest


def _write(path: Path, text: str) -> None:
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise UserError("the file exists already", where=str(path), fix="choose another --output") from None
    except OSError as error:
        raise UserError(f"cannot write the file: {error.strerror}", where=str(path)) from None
