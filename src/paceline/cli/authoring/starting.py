"""The text of a technique to begin with, for any operation: from its arguments, or from a shipped technique."""

from __future__ import annotations

import ast
import re
import textwrap
from pathlib import Path

from paceline.base.errors import UserError, expected_one_of
from paceline.base.families.arguments import Argument
from paceline.base.families.family import family_names, load_family
from paceline.base.families.operation import Operation
from paceline.base.techniques.technique import TechniqueSource
from paceline.spec import content

WIDTH = 112
KEPT = ("requires", "properties")
"""What a new technique takes over of the decorator of the one that it begins from: not its paper, nor its card."""
EAGER = "torch-eager"

KERNEL = '''\
"""{summary}

Algorithm: PyTorch's own operators; put yours in their place.
Cost: theirs.
Limits: {started}.

{arguments}
"""

from __future__ import annotations

from torch import Tensor

from paceline import technique
from paceline.families.kernels.api.eager import Eager
from paceline.families.kernels.api.problem import Problem


@technique(
    name="{name}",
    family="kernels",
    implements=("{operation}",),
    summary="{operation} by PyTorch's operators",
)
class {class_name}:
    """Calls PyTorch."""

    def __init__(self, problem: Problem) -> None:
        self.eager = Eager(problem).function

    def run(self, {parameters}) -> None:
        """Fill {filled}."""
        self.eager({passed})
'''


def operation_named(name: str, family: str | None) -> tuple[str, Operation]:
    """Return the family and the operation that ``[FAMILY/]OPERATION`` means.

    Raises:
        UserError: No family that is meant has it, or several have.
    """
    place, _, short = name.rpartition("/")
    chosen = place or family
    every = {
        f"{other.name}/{key}": found
        for other in map(load_family, family_names())
        if not other.internal and chosen in (None, other.name)
        for key, found in other.operations.items()
    }
    found = {key: operation for key, operation in every.items() if key.partition("/")[2] == short}
    if len(found) == 1 and family in (None, next(iter(found)).partition("/")[0]):
        ((key, operation),) = found.items()
        return key.partition("/")[0], operation
    whose = f" of {chosen}" if chosen else ""
    raise UserError(
        f"'{name}' is an operation of several families" if found else f"'{short}' is no operation{whose}",
        where="--op",
        expected=expected_one_of(
            name, found or {k.partition("/")[2] if chosen else k: o for k, o in every.items()}
        ),
        fix="paceline list operations",
    )


def start_of(family: str, operation: str) -> TechniqueSource:
    """Return the shortest shipped technique of an operation; one of no paper, and of no other operation, before others.

    Raises:
        UserError: There is none.
    """
    known = [s for s in content.techniques(family).values() if operation in s.info.implements]
    if not known:
        raise UserError(
            f"no shipped technique implements {operation}: there is nothing to begin from",
            where="--op",
            fix="paceline kernel --help" if operation == "custom" else "paceline list operations",
        )
    return min(known, key=lambda s: (s.info.paper is not None, _lines(s.path), s.info.name))


def _lines(path: Path) -> int:
    return path.read_text(encoding="utf-8").count("\n")


def text_for(family: str, operation: Operation, name: str, class_name: str, function_name: str) -> str:
    """Return a file with a technique of an operation that conforms as it stands.

    Args:
        family: The operation's family.
        operation: What it implements.
        name: The technique's.
        class_name: For a class.
        function_name: For a function.

    Raises:
        UserError: There is no technique to begin from.
    """
    eager = content.techniques(family).get(EAGER)
    if operation.arguments and eager is not None and operation.name in eager.info.implements:
        return _kernel(operation, name, class_name)
    return _begun_from(start_of(family, operation.name), operation, name, class_name, function_name)


def _kernel(operation: Operation, name: str, class_name: str) -> str:
    arguments = operation.arguments
    return KERNEL.format(
        summary="\n".join(textwrap.wrap(operation.summary, WIDTH)),
        arguments=described(arguments),
        started=f"written by paceline new technique --op kernels/{operation.name}",
        name=name,
        operation=operation.name,
        class_name=class_name,
        parameters=", ".join(f"{a.name}: Tensor" for a in arguments),
        filled=" and ".join(a.name for a in arguments if a.role != "in"),
        passed=", ".join(a.name for a in arguments),
    )


def described(arguments: tuple[Argument, ...]) -> str:
    """Return the arguments of ``run``, each on a line, for a docstring."""
    lines = ["``run`` is given, in this order:"]
    for argument in arguments:
        lines += textwrap.wrap(argument.text, WIDTH, initial_indent="  ", subsequent_indent="    ")
    return "\n".join(lines)


def _begun_from(
    source: TechniqueSource, operation: Operation, name: str, class_name: str, function_name: str
) -> str:
    """Return a shipped technique's file under another name, for one operation, without its paper."""
    text = source.path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    node = next(
        n
        for n in tree.body
        if any(getattr(d, "lineno", 0) == source.line for d in getattr(n, "decorator_list", ()))
    )
    assert isinstance(node, ast.ClassDef | ast.FunctionDef)
    decorator = node.decorator_list[0]
    assert isinstance(decorator, ast.Call)
    cuts = [(decorator.lineno - 1, _end(decorator), _decorator(decorator, text, source, operation, name))]
    others = {f"_{other}" for other in source.info.implements if other != operation.name}
    for method in node.body:
        if isinstance(method, ast.FunctionDef) and method.name in others:
            cuts.append((method.lineno - 2, _end(method), ""))
    docstring = tree.body[0]
    cuts.append(
        (docstring.lineno - 1, _end(docstring), _header(ast.get_docstring(tree) or "", source, operation))
    )
    lines = _renamed(text, tree, node, class_name if isinstance(node, ast.ClassDef) else function_name)
    for begin, end, new in sorted(cuts, reverse=True):
        lines[begin:end] = [new] if new else []
    return "".join(lines)


def _renamed(text: str, tree: ast.Module, node: ast.ClassDef | ast.FunctionDef, new: str) -> list[str]:
    """Return the lines of a file in which one class or function has another name, wherever the code names it."""
    lines = text.splitlines(keepends=True)
    uses = {n.lineno for n in ast.walk(tree) if isinstance(n, ast.Name) and n.id == node.name}
    for number in {node.lineno, *uses}:
        # A keyword argument or an attribute of that name is another thing.
        lines[number - 1] = re.sub(rf"(?<![.\w]){node.name}\b(?!\s*=(?!=))", new, lines[number - 1])
    return lines


def _end(node: ast.stmt | ast.expr) -> int:
    assert node.end_lineno is not None
    return node.end_lineno


def _decorator(call: ast.Call, text: str, source: TechniqueSource, operation: Operation, name: str) -> str:
    kept = {k.arg: ast.get_source_segment(text, k.value) for k in call.keywords}
    lines = [
        f'name="{name}"',
        f'family="{source.info.family}"',
        f'implements=("{operation.name}",)',
        f"summary={kept['summary']}",
        *(f"{key}={kept[key]}" for key in KEPT if key in kept),
    ]
    return "@technique(\n" + "".join(f"    {line},\n" for line in lines) + ")\n"


def _header(docstring: str, source: TechniqueSource, operation: Operation) -> str:
    begun = (
        f"Begun from {source.info.name} by paceline new technique --op {source.info.family}/{operation.name}."
    )
    parts = [docstring, begun, described(operation.arguments) if operation.arguments else ""]
    body = "\n\n".join(part for part in parts if part)
    raw = "r" if "\\" in body else ""
    return f'{raw}"""{body}\n"""\n'
