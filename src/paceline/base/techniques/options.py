"""Options of a technique: what a suite may set, declared by the keyword-only parameters of its constructor.

A class's constructor is its own ``__init__``, and one that it inherits declares nothing; a function is its own. Each
option has an annotation and a literal default. The control plane reads them from the source with ``ast``; in a process
that imported the technique they are read from the signature. Both find the same.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from paceline.base.errors import UserError, expected_one_of
from paceline.base.techniques.declarations import Place, accepts, described

_TYPES: Mapping[str, Any] = {"bool": bool, "int": int, "float": float, "str": str, "None": None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option as the source declares it."""

    default: Any
    annotation: Any
    """What a value has to be; by the default where the source names a type that is defined elsewhere."""
    line: int


def options_in_source(
    node: ast.ClassDef | ast.FunctionDef, at: Place, given: Mapping[str, Any] | None = None
) -> dict[str, Option]:
    """Return the options of a class or function, in their order, without running it.

    Args:
        node: The class or function.
        at: ``file:line:key`` of ``line:key``.
        given: What ``options=`` says in files of earlier versions, which the constructor must not contradict.

    Raises:
        UserError: An option has no annotation, no default, one that is no literal or of another type, or ``given``
            contradicts the constructor.
    """
    constructor = _constructor(node)
    if given is not None:
        return _agreed(constructor, at, given)
    if constructor is None:
        return {}
    pairs = zip(constructor.args.kwonlyargs, constructor.args.kw_defaults, strict=True)
    return {parameter.arg: _option(parameter, default, at) for parameter, default in pairs}


def arguments_in_source(node: ast.ClassDef | ast.FunctionDef) -> tuple[str, ...] | None:
    """Return the arguments with a default of a class or function, options among them; None where they cannot be read.

    A constructor that is inherited, or that takes ``**others``, is not all there is to read.
    """
    constructor = _constructor(node)
    if constructor is None or constructor.args.kwarg is not None:
        return None
    arguments = constructor.args
    by_position = [*arguments.posonlyargs, *arguments.args]
    given = by_position[len(by_position) - len(arguments.defaults) :]
    return tuple(a.arg for a in (*given, *arguments.kwonlyargs))


def options_of(factory: Callable[..., Any]) -> dict[str, Any]:
    """Return names and defaults of the options of a class or function that was imported."""
    constructor = vars(factory).get("__init__") if inspect.isclass(factory) else factory
    if constructor is None:
        return {}
    parameters = inspect.signature(constructor).parameters.values()
    return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}


def taken_by(function: Callable[..., Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of a case's options that a function has parameters for: a formula names what it depends on."""
    parameters = inspect.signature(function).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return dict(options)
    return {name: value for name, value in options.items() if name in parameters}


def _constructor(node: ast.ClassDef | ast.FunctionDef) -> ast.FunctionDef | None:
    if isinstance(node, ast.FunctionDef):
        return node
    return next((n for n in node.body if isinstance(n, ast.FunctionDef) and n.name == "__init__"), None)


_NO_LITERAL = object()


def _literal(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except ValueError:
        return _NO_LITERAL


def _agreed(constructor: ast.FunctionDef | None, at: Place, given: Mapping[str, Any]) -> dict[str, Option]:
    """Return the options of ``options=``, unless the constructor has other names or defaults."""
    plain = {n: Option(default=v, annotation=_kind_of(v), line=0) for n, v in given.items()}
    if constructor is None:
        return plain
    arguments = constructor.args
    by_position = [*arguments.posonlyargs, *arguments.args]
    pairs: list[tuple[ast.arg, ast.expr | None]] = [
        *zip(by_position[len(by_position) - len(arguments.defaults) :], arguments.defaults, strict=True),
        *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True),
    ]
    written = {parameter.arg: (parameter, default) for parameter, default in pairs}
    for name, value in given.items():
        if name not in written:
            if arguments.kwarg is None:
                raise UserError(
                    f"options= has '{name}', which the constructor lacks",
                    where=at(f"{constructor.lineno}:{name}"),
                    expected=expected_one_of(name, written),
                    fix="leave options= out: the constructor's keyword-only parameters declare options",
                )
            continue
        parameter, default = written[name]
        found = _NO_LITERAL if default is None else _literal(default)
        if found is not _NO_LITERAL and found != value:
            raise UserError(
                f"the option '{name}' is {found!r} in the constructor and {value!r} in options=",
                where=at(f"{parameter.lineno}:{name}"),
                expected="one default",
                fix="leave options= out: the constructor's keyword-only parameters declare options",
            )
        plain[name] = Option(default=value, annotation=_annotated(parameter, value), line=parameter.lineno)
    return plain


def _option(parameter: ast.arg, default: ast.expr | None, at: Place) -> Option:
    name, where = parameter.arg, at(f"{parameter.lineno}:{parameter.arg}")
    value = _NO_LITERAL if default is None else _literal(default)
    if value is _NO_LITERAL:
        raise UserError(
            f"the option '{name}' has no default that can be read",
            where=where,
            expected="a plain string, number, True, False or None: it is read without running the file",
        )
    if parameter.annotation is None:
        raise UserError(
            f"the option '{name}' has no annotation",
            where=where,
            expected=f"{name}: {type(value).__name__} = {value!r}",
        )
    annotation = _annotated(parameter, value)
    if not accepts(value, annotation):
        raise UserError(
            f"the option '{name}' is {value!r} by default", where=where, expected=described(annotation, value)
        )
    return Option(default=value, annotation=annotation, line=parameter.lineno)


def _annotated(parameter: ast.arg, default: Any) -> Any:
    """Return what values a parameter takes: as annotated, or as its default where the type is defined elsewhere."""
    try:
        return _annotation(parameter.annotation) if parameter.annotation else _kind_of(default)
    except (KeyError, TypeError, ValueError, SyntaxError):
        return _kind_of(default)


def _kind_of(default: Any) -> Any:
    return Any if default is None else type(default)


def _annotation(node: ast.expr) -> Any:
    """Return the type that an annotation names.

    Raises:
        KeyError: It is defined elsewhere.
    """
    if isinstance(node, ast.Name):
        return _TYPES[node.id]
    if isinstance(node, ast.Constant):
        return _annotation(ast.parse(node.value, mode="eval").body) if isinstance(node.value, str) else None
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return _annotation(node.left) | _annotation(node.right)
    if isinstance(node, ast.Subscript) and ast.unparse(node.value).split(".")[-1] == "Literal":
        values = ast.literal_eval(node.slice)
        return Literal[values]
    raise KeyError(ast.unparse(node))
