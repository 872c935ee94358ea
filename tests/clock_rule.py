"""The rule that keeps clocks out of the gate: which tests assert what only a quiet machine can promise.

Refused in a test of the gate, and in what its module defines for it:

- an assertion that a clock's reading, or what was computed from it, is below a bound or equal to something (that it is
  above one, or lies between two readings, holds on every machine; so does the end of a loop that looks for an event);
- an assertion on the verdict, the grade or the decision of a real run;
- a sleep, after which something is expected to have happened.

A line that says ``# on any machine: WHY`` is left alone. Any other such test injects its clock, waits for an event, or
is ``@pytest.mark.measured`` (docs/testing.md).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from syntax_trees import tree_of

CLOCKS = frozenset(
    f"{name}{unit}"
    for name in ("perf_counter", "monotonic", "process_time", "thread_time", "time", "clock_gettime")
    for unit in ("", "_ns")
)
OUTCOMES = frozenset(("verdict", "grade", "decided"))
REAL_RUNS = frozenset(
    ("record_of", "record_of_text", "run_suites", "conformance", "run_conformance", "measure")
)
EXCUSE = "# on any machine: "
ELSEWHERE = frozenset(("measured", "full"))
"""Markers of tests that the gate does not run."""


def breaches(source: str) -> list[str]:
    """Return the lines of a test module of the gate that ask a clock, each with what it does."""
    tree = tree_of(source)
    if _marks_of_module(tree) & ELSEWHERE:
        return []
    clocks, lines = _names_of_clocks(tree), source.splitlines()
    runs = any(isinstance(node, ast.Call) and _name(node.func) in REAL_RUNS for node in ast.walk(tree))
    found = []
    for function in _functions(tree.body):
        found += _clock_assertions(function, clocks)
        found += _sleeps(function, clocks)
        found += _outcomes(function) if runs else []
    number = {said: int(said.split(":")[0]) for said in found}
    return sorted((said for said in number if EXCUSE not in lines[number[said] - 1]), key=number.__getitem__)


def _functions(body: list[ast.stmt]) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield functions and methods that the gate may run; those that are marked for another suite are left out."""
    for node in body:
        if isinstance(node, ast.ClassDef) and not _marks(node) & ELSEWHERE:
            yield from _functions(node.body)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not _marks(node) & ELSEWHERE:
            yield node


def _marks(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    return {_name(d.func if isinstance(d, ast.Call) else d) for d in node.decorator_list}


def _marks_of_module(tree: ast.Module) -> set[str]:
    assigned = [
        n.value for n in tree.body if isinstance(n, ast.Assign) and "pytestmark" in map(_name, n.targets)
    ]
    return {_name(part) for value in assigned for part in ast.walk(value) if isinstance(part, ast.Attribute)}


def _names_of_clocks(tree: ast.Module) -> set[str]:
    """Return the names by which a module calls clocks and ``sleep`` besides ``time.…``."""
    return {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "time"
        for alias in node.names
    }


def _clock_assertions(function: ast.AST, clocks: set[str]) -> list[str]:
    """Return assertions on values that came from a clock, through any number of names."""
    tainted: set[str] = set()
    while True:
        before = len(tainted)
        for node in ast.walk(function):
            value, targets = _assignment(node)
            if value is not None and _asks(value, clocks, tainted):
                tainted |= {n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)}
        if len(tainted) == before:
            break
    ends = {id(node) for loop in ast.walk(function) if isinstance(loop, ast.While) for node in ast.walk(loop)}
    return [
        f"{node.lineno}: asserts on a clock's reading"
        for node in ast.walk(function)
        if isinstance(node, ast.Assert) and id(node) not in ends and _bounds(node.test, clocks, tainted)
    ]


def _bounds(test: ast.expr, clocks: set[str], tainted: set[str]) -> bool:
    """Tell whether a condition holds only where a clock's reading is small enough, or just so."""
    if isinstance(test, ast.BoolOp):
        return any(_bounds(value, clocks, tainted) for value in test.values)
    if not _asks(test, clocks, tainted):
        return False
    if not isinstance(test, ast.Compare):
        return True
    if all(isinstance(op, ast.Lt | ast.LtE) for op in test.ops):
        return not _asks(test.comparators[-1], clocks, tainted)
    if all(isinstance(op, ast.Gt | ast.GtE) for op in test.ops):
        return not _asks(test.left, clocks, tainted)
    return True


def _assignment(node: ast.AST) -> tuple[ast.expr | None, list[ast.expr]]:
    if isinstance(node, ast.Assign):
        return node.value, node.targets
    if isinstance(node, ast.AnnAssign | ast.AugAssign | ast.NamedExpr):
        return node.value, [node.target]
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("append", "add", "extend")
        and node.args
    ):
        return node.args[0], [node.func.value]
    return None, []


def _asks(value: ast.expr, clocks: set[str], tainted: set[str]) -> bool:
    for node in ast.walk(value):
        if isinstance(node, ast.Name) and node.id in tainted:
            return True
        if isinstance(node, ast.Call) and _is_clock(node.func, clocks) and _name(node.func) != "sleep":
            return True
    return False


def _is_clock(function: ast.expr, clocks: set[str]) -> bool:
    if isinstance(function, ast.Name):
        return function.id in clocks
    return (
        isinstance(function, ast.Attribute)
        and _name(function.value) == "time"
        and (function.attr in CLOCKS or function.attr == "sleep")
    )


def _sleeps(function: ast.AST, clocks: set[str]) -> list[str]:
    """Return sleeps outside of loops: a loop that looks for an event may wait between looks."""
    within = {
        id(inner)
        for loop in ast.walk(function)
        if isinstance(loop, ast.While | ast.For | ast.AsyncFor)
        for inner in ast.walk(loop)
    }
    return [
        f"{node.lineno}: sleeps, and expects that something has happened"
        for node in ast.walk(function)
        if isinstance(node, ast.Call)
        and _name(node.func) == "sleep"
        and _is_clock(node.func, clocks)
        and id(node) not in within
    ]


def _outcomes(function: ast.AST) -> list[str]:
    found = []
    for node in ast.walk(function):
        if not isinstance(node, ast.Assert):
            continue
        for part in ast.walk(node.test):
            key = part.value if isinstance(part, ast.Constant) else _name(part)
            if key in OUTCOMES:
                found.append(f"{node.lineno}: asserts on the {key} of a real run")
    return found


def _name(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
