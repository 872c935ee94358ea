"""Commands that errors, notes and pages suggest can be called as printed; what is wrong is said, and what to do.

Texts are collected from the source. What stands for a value there stands for one here, too.
"""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import record_factory as factory
from click.testing import CliRunner
from syntax_trees import tree_of

from paceline.base.errors import UserError
from paceline.cli import application, main
from paceline.records.store.folder import load
from paceline.records.store.lookup import find_run
from paceline.records.store.storage import check_writable, storage_errors
from paceline.spec import content
from paceline.workflows import stores

SOURCE = Path(main.__code__.co_filename).parents[1]
VALUE = "VALUE"
"""Stands for what a text is formatted with."""
COMMAND = re.compile(r"(?:^|[:;,(] *|\n *|  +|\bor |\bthen |\bwith )paceline ([^,;:)(`\"\n|<>\]#]+)")
"""A command at the beginning of a text or behind a sign or word that introduces one."""
PROSE = frozenset(
    (
        "says",
        "writes",
        "keeps",
        "tries",
        "lists",
        "shows",
        "prints",
        "makes",
        "with",
        "on",
        "in",
        "or",
        "and",
        "does",
        "of",
    )
)
"""Words with which a sentence goes on behind a command."""
TEMPLATES = re.compile(r'parts\.command\("([^"]+)"\)')
NO_COMMANDS = {
    "nightly VALUE": "the name of a suite of JUnit",
    "claims COMMAND '[OPTIONS'": "a pattern of commands",
}


def texts_of(tree: ast.AST) -> Iterator[str]:
    """Yield the texts of a module that are no docstrings; values are ``VALUE``."""
    parts = {id(p) for n in ast.walk(tree) if isinstance(n, ast.JoinedStr) for p in ast.walk(n) if p is not n}
    alone = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(p.value if isinstance(p, ast.Constant) else VALUE for p in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts | alone:
            yield node.value


def commands_in(text: str) -> Iterator[str]:
    """Yield the commands that a text suggests, without ``paceline``."""
    for found in COMMAND.finditer(text):
        whole = found[1].count("'") % 2 == 0  # else a quote around the command ends it
        words = shlex.split(found[1] if whole else found[1].rpartition("'")[0])
        end = next((i for i, word in enumerate(words) if word in PROSE), len(words))
        if words[:end] and words[0] != VALUE:
            yield shlex.join(words[:end])


def suggestions() -> list[str]:
    """Return all commands that the source suggests, each once."""
    found: dict[str, None] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        for text in texts_of(tree_of(source)) if "paceline " in source else ():
            found |= dict.fromkeys(commands_in(text))
    for page in sorted((content.report_templates() / "templates").glob("*.html")):
        for line in TEMPLATES.findall(page.read_text(encoding="utf-8")):
            found |= dict.fromkeys(part.removeprefix("paceline ") for part in line.split(" && "))
    return [command for command in found if command not in NO_COMMANDS]


def fault(text: str) -> str | None:
    """Return what the command line has against a command, or None; values that stand for others are not judged."""
    words, name = shlex.split(text), "paceline"
    command: click.Command = application
    context = click.Context(application)
    while isinstance(command, click.Group):
        if not words:
            return None
        name, *words = words
        below = command.get_command(context, name.removesuffix(VALUE))
        if below is None:
            return f"no such command {name}"
        command, context = below, click.Context(below, info_name=name, parent=context)
    try:
        command.make_context(name, list(words), parent=context.parent)
    except click.exceptions.Exit:  # by --help, which is an answer
        return None
    except click.MissingParameter as error:
        return str(error)
    except click.BadParameter as error:
        stands_for = any(re.search(r"\b[A-Z]{3,}\b", word) for word in words)
        return None if stands_for else error.format_message()
    except click.UsageError as error:
        return error.format_message()
    return None


def test_every_suggested_command_parses() -> None:
    found = suggestions()
    assert len(found) > 50, "the pattern finds them"
    assert {c: said for c in found if (said := fault(c)) is not None} == {}


@pytest.mark.parametrize(
    "text",
    [
        "paceline new technique   # begins one of your own",
        "  fix: paceline store retract VALUE",
        "paceline plan --json",
        "and 3 more (paceline plan --json)",
        "try again, or paceline run --quickly x",
        "paceline summarise",
        "paceline doctor VALUE",
        "paceline calibrate --family nothing",
    ],
)
def test_a_command_that_cannot_be_called_is_found(text: str) -> None:
    (command,) = commands_in(text)
    assert fault(command) is not None


@pytest.mark.parametrize(
    "text", ["a fault of paceline itself", "what paceline export wrote", "in the order of `paceline export`"]
)
def test_the_name_of_a_command_in_a_sentence_is_no_suggestion(text: str) -> None:
    assert list(commands_in(text)) == []


@pytest.mark.parametrize("name", ["latest", "0193"])
def test_an_empty_store_is_called_empty_and_what_fills_it_is_said(name: str, tmp_path: Path) -> None:
    for ask in (lambda: find_run([tmp_path], name), lambda: load([tmp_path]).find(name)):
        with pytest.raises(UserError) as found:
            ask()
        said = str(found.value)
        assert f"the store has no run '{name}': nothing is recorded in it yet" in said
        assert "fix: paceline run tour/all-reduce makes one" in said
        assert "nothing (there is none)" not in said


def test_a_store_with_other_runs_names_them(tmp_path: Path) -> None:
    run_id = load([factory.simple(tmp_path).parents[2]]).records[0].run_id
    with pytest.raises(UserError, match=f"has no run 'another'\n  expected: one of: {run_id}"):
        find_run([tmp_path], "another")


@pytest.mark.parametrize("run_id", [None, "0193-1"])
@pytest.mark.parametrize("below", ["", "deeper/still"])
def test_a_file_where_the_store_should_be_is_said_to_be_one(
    run_id: str | None, below: str, tmp_path: Path
) -> None:
    file = tmp_path / "file"
    file.touch()
    for place in (file, Path("/dev/null")):
        with pytest.raises(UserError) as found:
            check_writable(place / below, run_id=run_id)
        said = str(found.value)
        assert f"{place} is no folder, and the results folder has to be one" in said
        assert "fix: --results=DIR" in said
        assert "already recorded" not in said


def test_a_record_that_is_there_is_still_told(tmp_path: Path) -> None:
    path = tmp_path / "record.jsonl"
    path.touch()
    with pytest.raises(UserError, match="already recorded"), storage_errors(path, run_id="0193-1"):
        path.open("x")


def test_show_looks_in_the_store_that_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    published = tmp_path / "published"
    factory.simple(published)
    monkeypatch.setattr(stores, "published_results", lambda: published)
    (tmp_path / "own").mkdir()
    shown = CliRunner().invoke(application, ["show", "latest", "--results", str(tmp_path / "own")])
    assert isinstance(shown.exception, UserError)
    assert "has no run 'latest': nothing is recorded" in str(shown.exception)
    shown = CliRunner().invoke(application, ["show", "latest", "--results", "/dev/null"])
    assert "no such store" in str(shown.exception)
