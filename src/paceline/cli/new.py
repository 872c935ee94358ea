"""``paceline new``: begin a suite or a technique from an example of its family that already runs."""

from __future__ import annotations

from pathlib import Path

import click

from paceline.base.errors import UserError, expected_one_of
from paceline.base.technique import NAME_RULE, valid_name
from paceline.cli.options import Command

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
@click.option("--output", type=click.Path(path_type=Path), default=None, help="File [default: NAME.py].")
def new_technique(name: str, family: str | None, output: Path | None) -> None:
    """Write a technique that passes its family's conformance run, as a starting point to edit.

    NAME may contain an author and may begin with the family: my-lab/gather-add, kernels/my-lab/row-chunks.
    """
    family, short = _placed(name, family)
    word = short.rpartition("/")[2].replace("-", "_")
    path = output or Path(f"{word}.py")
    class_name = "".join(part.capitalize() for part in word.split("_"))
    text = (EXAMPLES / f"{family}.py.txt").read_text(encoding="utf-8")
    for placeholder, value in (
        ("NAME", short),
        ("ClassName", class_name if class_name.isidentifier() else f"Technique{class_name}"),
        ("function_name", word if word.isidentifier() else f"technique_{word}"),
    ):
        text = text.replace(placeholder, value)
    _write(path, text)
    click.echo(
        f"wrote {path}\n  check it: paceline check {path}\n"
        f"  run it:   paceline run {SUITES[family]} --tier quick --technique {path}"
    )


def _placed(name: str, family: str | None) -> tuple[str, str]:
    """Return the family that is meant, and the name without it.

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
        return family or USUAL, name
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
