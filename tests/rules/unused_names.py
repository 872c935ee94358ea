"""Lists what nobody uses: definitions that no code, text, suite or test names, and parameters that no code reads."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from syntax_trees import nodes_of, tree_of

from paceline.base.families.family import Family

CALLED_BY_NAME = re.compile(
    r"__\w+__|do_\w+|pytest_\w+|on_\w+|model_config|_fields_|run_block|sealed|sealed_seldom|points|RANKS|PROTOCOL"
    r"|OPERATION|FAMILY|METRIC"
)
"""What Python, a library or the harness itself calls by a name that it puts together or that it looks for."""
CALLED_BY_LIBRARIES = frozenset(
    {
        *("connection_made", "connection_lost", "data_received"),  # asyncio
        *("make_context", "list_commands", "get_command", "format_commands", "resolve_command"),  # click
        *("get_seq_length",),  # transformers
        *("log_message", "handle_error", "request_queue_size", "protocol_version"),  # http.server
        *("disable_nagle_algorithm",),  # socketserver
        *("redirect_request",),  # urllib
        *("ignore_aliases",),  # PyYAML
        *("_send_recv",),  # a collective of the baseline `native`, by the operation's name
        *("IMPORTED_EARLY",),  # a module that has to be loaded
    }
)
DECORATORS = re.compile(r"technique|command|validator|serializer|group")
LONGEST_NAME_TEXT = 200
"""Longer texts are prose, in which names of things are words."""


def unused_definitions(code: Iterable[Path], users: Iterable[Path], texts: Iterable[Path]) -> list[str]:
    """Return ``file:line name`` of each function, class, method and constant that is named nowhere else.

    Args:
        code: Files whose definitions are meant.
        users: Python files in which they may be used, their own among them.
        texts: Other files in which their names may stand, such as templates.
    """
    used = _uses(users)
    words = {word for path in texts for word in re.findall(r"\w+", path.read_text(encoding="utf-8"))}
    found = []
    for path in code:
        for node, name in _definitions(tree_of(path.read_text(encoding="utf-8"))):
            if CALLED_BY_NAME.fullmatch(name) or name in CALLED_BY_LIBRARIES or name in words:
                continue
            if any(DECORATORS.search(ast.unparse(d)) for d in getattr(node, "decorator_list", ())):
                continue
            inside = range(node.lineno, (node.end_lineno or node.lineno) + 1)
            if not any(where != path or line not in inside for where, line in used.get(name, ())):
                found.append(f"{path}:{node.lineno} {name}")
    return sorted(found)


def unread_parameters(family: Family, code: Iterable[Path]) -> list[str]:
    """Return the parameters of a family that its code, declarations aside, never names."""
    used = _uses(p for p in code if p.name != "parameters.py")
    return [p.name for p in family.parameters if p.name not in used]


def unmeasured_metrics(family: Family, code: Iterable[Path]) -> list[str]:
    """Return the metrics of a family that its code, declarations aside, never names nor puts together.

    A name that code puts together, such as ``f"{part}_bytes"``, counts as every name that ends so.
    """
    files = [p for p in code if not p.name.endswith("metrics.py")]
    used, endings = _uses(files), tuple(_endings(files))
    computed = {c.metric.name for c in family.computed}
    names = [m.name for m in family.metrics if m.name not in used and m.name not in computed]
    return [name for name in names if not name.endswith(endings)]


def _endings(paths: Iterable[Path]) -> Iterator[str]:
    """Yield what names that are put together end with."""
    for path in paths:
        for node in nodes_of(path.read_text(encoding="utf-8")):
            if isinstance(node, ast.JoinedStr) and len(node.values) == 2:
                first, last = node.values
                if isinstance(first, ast.FormattedValue) and isinstance(last, ast.Constant):
                    text = str(last.value)
                    if re.fullmatch(r"_\w+", text):
                        yield text


def _definitions(tree: ast.Module | ast.ClassDef) -> Iterator[tuple[ast.stmt, str]]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node, node.name
            if isinstance(node, ast.ClassDef):
                yield from _definitions(node)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node, node.target.id
        elif isinstance(node, ast.Assign):
            yield from ((node, target.id) for target in node.targets if isinstance(target, ast.Name))


def _uses(paths: Iterable[Path]) -> dict[str, list[tuple[Path, int]]]:
    """Return where each name is read, called, imported, given as a keyword, or written in a short text."""
    found: dict[str, list[tuple[Path, int]]] = {}
    for path in paths:
        for name, line in _names_in(path.read_text(encoding="utf-8")):
            found.setdefault(name, []).append((path, line))
    return found


@cache
def _names_in(source: str) -> tuple[tuple[str, int], ...]:
    """Return the names that a source uses, and where; of each once, though several checks ask for it."""
    return tuple(
        (name, getattr(node, "lineno", 0))
        for node in nodes_of(source)
        if (names := _NAMES.get(type(node))) is not None
        for name in names(node)
    )


def _in_text(node: Any) -> Iterable[str]:
    short = isinstance(node.value, str) and len(node.value) < LONGEST_NAME_TEXT
    return re.findall(r"\w+", node.value) if short else ()


def _imported(node: Any) -> Iterable[str]:
    return [alias.name.split(".")[-1] for alias in node.names]


_NAMES: dict[type[ast.AST], Callable[[Any], Iterable[str]]] = {
    ast.Name: lambda node: (node.id,) if isinstance(node.ctx, ast.Load) else (),
    ast.Attribute: lambda node: (node.attr,),
    ast.keyword: lambda node: () if node.arg is None else (node.arg,),
    ast.Import: _imported,
    ast.ImportFrom: _imported,
    ast.Constant: _in_text,
}
"""The names that nodes of a kind use."""
