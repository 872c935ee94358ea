"""Where each field goes that is read from what others write: servers, tools, schedulers and the kernel.

``python tests/parsed_fields.py`` writes the table of docs/parsed-fields.md. A module reads a field if it takes an
attribute of that name and lies where such objects come to; a name that is common there may hide a field that nobody
reads.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from syntax_trees import nodes_of, tree_of

SOURCE = Path(__file__).resolve().parents[1] / "src" / "paceline"
DOCUMENT = SOURCE.parents[1] / "docs" / "parsed-fields.md"
MARK = "<!-- table -->\n"
LOAD, IMPORTS = "families/serving/core/load", "records/imports"
NOT_USED = {
    "Entry.tries": "in the raw log; what a second try to connect costs is in the call's instants",
}
"""Fields that no module reads, and why they are kept."""
MOST_NAMED = 4
"""Modules that are named of those that read a field."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsed:
    """A class whose objects hold what somebody else said."""

    module: str
    name: str
    said_by: str
    comes_to: tuple[str, ...]
    """Folders and files, below the package, that get such objects."""


PARSED = tuple(
    Parsed(module=module, name=name, said_by=said_by, comes_to=comes_to)
    for module, name, said_by, comes_to in (
        (f"{LOAD}/log/entries.py", "Entry", "an HTTP server, of one call", ("families/serving",)),
        (
            f"{LOAD}/log/events.py",
            "Stream",
            "a model's server, in its events",
            ("families/serving", "workflows"),
        ),
        (f"{LOAD}/log/deltas.py", "Output", "a model's server, in one event", (LOAD,)),
        (
            f"{LOAD}/log/outcomes.py",
            "Outcome",
            "what those two come to",
            ("families/serving", "report", "cli"),
        ),
        (
            "families/reasoning/core/backends/chat.py",
            "ChatAnswer",
            "a model's endpoint",
            ("families/reasoning", "workflows"),
        ),
        (
            "families/reasoning/core/backends/chat.py",
            "Choice",
            "a model's endpoint",
            ("families/reasoning", "workflows"),
        ),
        (
            f"{IMPORTS}/reading.py",
            "Foreign",
            "a file of another tool",
            (IMPORTS, "cli/publishing/exchange.py"),
        ),
        (f"{IMPORTS}/reading.py", "Reading", "a file of another tool, of one series", (IMPORTS,)),
        (f"{IMPORTS}/reading.py", "Number", "a file of another tool", (IMPORTS,)),
        (f"{IMPORTS}/nccl_side.py", "Side", "a table of nccl-tests", (IMPORTS,)),
        (f"{IMPORTS}/launchers.py", "OwnLines", "a tool's launcher", (IMPORTS,)),
        (f"{IMPORTS}/launchers.py", "Failure", "a tool's launcher", (IMPORTS,)),
        (
            f"{IMPORTS}/sample_logs.py",
            "SampleLog",
            "an evaluation of another tool",
            (IMPORTS, "analysis", "workflows"),
        ),
        (
            f"{IMPORTS}/sample_logs.py",
            "Scored",
            "an evaluation of another tool",
            (IMPORTS, "analysis", "workflows"),
        ),
        (
            "families/programs/core/reported.py",
            "Reported",
            "a program's output",
            ("families/programs", "workflows"),
        ),
        ("drivers/slurm/states.py", "TaskState", "Slurm", ("drivers",)),
        ("drivers/kubernetes/states.py", "PodState", "Kubernetes, of a pod", ("drivers",)),
        ("drivers/kubernetes/states.py", "JobState", "Kubernetes, of a job", ("drivers",)),
        ("drivers/kubernetes/states.py", "Ending", "Kubernetes, of an end", ("drivers",)),
        ("drivers/machine/deviceuse.py", "DeviceUse", "a vendor's tool", ("drivers",)),
        ("worker/machine/foreign_load.py", "Reading", "the kernel, of all processors", ("worker",)),
        ("worker/machine/foreign_load.py", "ProcessTime", "the kernel, of a process", ("worker",)),
        ("worker/machine/device_settings.py", "Place", "a vendor's tool, of a device", ("worker",)),
    )
)


def fields_of(source: str, name: str) -> list[str]:
    """Return the fields of a dataclass in a module's text."""
    found = next(n for n in tree_of(source).body if isinstance(n, ast.ClassDef) and n.name == name)
    return [
        s.target.id for s in found.body if isinstance(s, ast.AnnAssign) and isinstance(s.target, ast.Name)
    ]


@cache
def read_in(source: str) -> frozenset[str]:
    """Return the names of attributes that a module's text takes, and of fields that it names for ``getattr``."""
    found: set[str] = set()
    for node in nodes_of(source):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            found.add(node.attr)
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("getattr", "attrgetter"):
            found |= {a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)}
    return frozenset(found)


def sources() -> dict[str, str]:
    """Return the text of each module by its path below the package."""
    return {
        p.relative_to(SOURCE).as_posix(): p.read_text(encoding="utf-8") for p in sorted(SOURCE.rglob("*.py"))
    }


def readers(texts: Mapping[str, str]) -> Iterator[tuple[Parsed, str, list[str]]]:
    """Yield each parsed field with the modules that read it."""
    taken = {path: read_in(text) for path, text in texts.items()}
    for parsed in PARSED:
        places = [p for p in texts if p.startswith(parsed.comes_to)]
        for field in fields_of(texts[parsed.module], parsed.name):
            yield parsed, field, [place for place in places if field in taken[place]]


def table(texts: Mapping[str, str]) -> str:
    """Return the table as Markdown."""
    lines = ["| said by | class | field | read by |", "|---|---|---|---|"]
    for parsed, field, places in readers(texts):
        named = ", ".join(f"`{p.removesuffix('.py')}`" for p in places[:MOST_NAMED])
        more = f" and {len(places) - MOST_NAMED} more" if len(places) > MOST_NAMED else ""
        unused = NOT_USED.get(f"{parsed.name}.{field}")
        goes = f"not used: {unused}" if unused else f"{named}{more}"
        lines.append(f"| {parsed.said_by} | `{parsed.name}` | `{field}` | {goes} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    head = DOCUMENT.read_text(encoding="utf-8").partition(MARK)[0]
    DOCUMENT.write_text(head + MARK + table(sources()), encoding="utf-8")
