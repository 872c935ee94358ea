"""What an operation asks of a technique: methods with the types of their arguments, read from source without torch.

An operation names a class of its family's ``api`` (``Operation.interface``). Its methods are the calls; the classes
that their signatures name, and those that these name in turn, are what a technique is handed and returns.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import util
from inspect import cleandoc
from pathlib import Path

from paceline.base.families.operation import Operation
from paceline.base.techniques.technique import TechniqueSource

PACKAGE = "paceline.families"


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """One method of a class."""

    name: str
    signature: str
    """Name, arguments and result, without ``self``: ``plan(view: View) -> Step``."""
    doc: str
    """The docstring; empty where there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One field of a class, or one attribute that its instances must have."""

    name: str
    annotation: str
    default: str
    """Empty where there is none."""
    doc: str
    """The text below it; empty where there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiClass:
    """A class of a family's ``api``, or a name that stands for a type there."""

    name: str
    module: str
    """Dotted, such as ``paceline.families.serving.api.scheduling``."""
    doc: str
    bases: tuple[str, ...] = ()
    fields: tuple[Field, ...] = ()
    constructor: Method | None = None
    methods: tuple[Method, ...] = ()
    """Public ones, properties among them."""
    names: tuple[str, ...] = ()
    """All names in its annotations, the bases' among them."""
    alias: str = ""
    """What it stands for, where it is no class."""


def interface_of(family: str, operation: Operation) -> ApiClass | None:
    """Return the class that an operation names; None where it names none.

    Raises:
        LookupError: The family's package has no such module, or the module no such class.
    """
    if not operation.interface:
        return None
    module, _, name = operation.interface.partition(":")
    return _class(f"{PACKAGE}.{family}.{module}", name)


def types_of(family: str, interfaces: Iterable[ApiClass]) -> list[ApiClass]:
    """Return what signatures of interfaces name of the family's ``api``, and what that names in turn, by module."""
    found: dict[tuple[str, str], ApiClass] = {}
    waiting = list(interfaces)
    while waiting:
        item = waiting.pop()
        if (item.module, item.name) in found:
            continue
        found[item.module, item.name] = item
        waiting += resolved(family, item)
    return [found[key] for key in sorted(found)]


def resolved(family: str, item: ApiClass) -> list[ApiClass]:
    """Return the classes of the family's ``api`` that a class names in its bases, fields and signatures."""
    return _in_api(family, _tree(item.module), item.names)


def _in_api(family: str, place: _Module, names: Iterable[str]) -> list[ApiClass]:
    """Return those of a module's names that classes of the family's ``api`` have, or names that stand for types."""
    found = []
    for name in names:
        module = place.origin(name)
        if module is not None and module.startswith(f"{PACKAGE}.{family}.api"):
            known = _tree(module)
            if name in known.classes or name in known.aliases:
                found.append(_class(module, name))
    return found


def made_by(source: TechniqueSource) -> tuple[tuple[str, ...], list[ApiClass]]:
    """Return the arguments that a technique is made with, without its options, and their types in its family's ``api``.

    Of a class that has no constructor of its own, the first base with one says it, where its module can be read.
    """
    tree = _Module(source.path.read_text(encoding="utf-8"))
    defined: list[ast.ClassDef | ast.FunctionDef] = [*tree.classes.values(), *tree.functions.values()]
    node = next(n for n in defined if any(d.lineno == source.line for d in n.decorator_list))
    found = (node, tree) if isinstance(node, ast.FunctionDef) else _constructor(node, tree)
    if found is None:
        return (), []
    function, place = found
    first, last = 0 if function is node else 1, len(function.args.args) - len(function.args.defaults)
    given = function.args.args[first:last]
    named = [name for a in given if a.annotation is not None for name in _names(a.annotation)]
    return tuple(ast.unparse(a) for a in given), _in_api(source.info.family, place, named)


def field_docs(place: type) -> dict[str, str]:
    """Return the text below each field of a dataclass and of its bases."""
    docs: dict[str, str] = {}
    for base in reversed(place.__mro__[:-1]):
        node = _tree(base.__module__).classes[base.__name__]
        docs |= {f.name: f.doc for f in _fields(node)}
    return docs


class _Module:
    """The definitions of a module, by name."""

    def __init__(self, text: str, name: str = "") -> None:
        self.name = name
        body = ast.parse(text).body
        self.classes = {n.name: n for n in body if isinstance(n, ast.ClassDef)}
        self.functions = {n.name: n for n in body if isinstance(n, ast.FunctionDef)}
        self.aliases: dict[str, tuple[str, str]] = {}
        self.imported: dict[str, tuple[str, str]] = {}
        for number, node in enumerate(body):
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                self.imported |= {a.asname or a.name: (node.module, a.name) for a in node.names}
            elif (
                isinstance(node, ast.Assign)
                and isinstance(node.targets[0], ast.Name)
                and isinstance(node.value, ast.Subscript | ast.BinOp)
                and node.targets[0].id[:1].isupper()
                and not node.targets[0].id.isupper()
            ):
                doc = _text_below(body[number + 1 : number + 2])
                self.aliases[node.targets[0].id] = (ast.unparse(node.value), doc)

    def origin(self, name: str) -> str | None:
        """Return the module that defines a name which is used here; None where it is built in or unknown."""
        if name in self.classes or name in self.aliases:
            return self.name
        module, original = self.imported.get(name, ("", ""))
        if module.startswith("paceline.") and original == name:
            return _tree(module).origin(name) or module
        return None


@cache
def _tree(module: str) -> _Module:
    """Read a module's source; parents are imported, which are packages without code."""
    spec = util.find_spec(module)
    if spec is None or spec.origin is None:
        raise LookupError(f"no module {module}")
    return _Module(Path(spec.origin).read_text(encoding="utf-8"), module)


def _class(module: str, name: str) -> ApiClass:
    tree = _tree(module)
    if name in tree.aliases:
        text, doc = tree.aliases[name]
        return ApiClass(name=name, module=module, doc=doc, alias=text, names=_names(ast.parse(text)))
    if name not in tree.classes:
        raise LookupError(f"{module} has no class {name}")
    node = tree.classes[name]
    own = [n for n in node.body if isinstance(n, ast.FunctionDef)]
    public = [n for n in own if not n.name.startswith("_") or n.name == "__call__"]
    constructor = next((n for n in own if n.name == "__init__"), None)
    annotated = [n.annotation for n in node.body if isinstance(n, ast.AnnAssign)]
    signatures = [a for n in (*public, *([constructor] if constructor else ())) for a in _annotations(n)]
    bases = tuple(ast.unparse(b) for b in node.bases if ast.unparse(b) != "Protocol")
    return ApiClass(
        name=name,
        module=module,
        doc=ast.get_docstring(node) or "",
        bases=bases,
        fields=tuple(_fields(node)),
        constructor=None if constructor is None else _method(constructor),
        methods=tuple(map(_method, public)),
        names=tuple(dict.fromkeys([*bases, *(n for a in (*annotated, *signatures) for n in _names(a))])),
    )


def _method(node: ast.FunctionDef) -> Method:
    decorators = {ast.unparse(d) for d in node.decorator_list}
    result = "" if node.returns is None else f" -> {_unquoted(node.returns)}"
    if decorators & {"property", "cached_property"}:
        signature = f"{node.name}{result}"
    else:
        shown = "" if node.name == "__call__" else node.name
        signature = f"{shown}{_arguments(node, bound='staticmethod' not in decorators)}{result}"
    return Method(name=node.name, signature=signature, doc=ast.get_docstring(node) or "")


def _arguments(node: ast.FunctionDef, *, bound: bool) -> str:
    """Return a function's arguments in brackets; a method's without the instance."""
    own = node.args
    if bound:
        own = ast.arguments(**{**{f: getattr(own, f) for f in own._fields}, "args": own.args[1:]})
    return f"({ast.unparse(own)})".replace("'", '"')


def _annotations(node: ast.FunctionDef) -> Iterator[ast.expr]:
    own = node.args
    for argument in (*own.posonlyargs, *own.args, *own.kwonlyargs, own.vararg, own.kwarg):
        if argument is not None and argument.annotation is not None:
            yield argument.annotation
    if node.returns is not None:
        yield node.returns


def _names(node: ast.AST) -> tuple[str, ...]:
    """Return the names in an annotation, in texts of it, too."""
    found: list[str] = []
    for part in ast.walk(node):
        if isinstance(part, ast.Name):
            found.append(part.id)
        elif isinstance(part, ast.Constant) and isinstance(part.value, str) and part.value.isidentifier():
            found.append(part.value)
    return tuple(dict.fromkeys(found))


def _unquoted(node: ast.expr) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ast.unparse(node)


def _fields(node: ast.ClassDef) -> Iterator[Field]:
    for number, item in enumerate(node.body):
        if not isinstance(item, ast.AnnAssign) or not isinstance(item.target, ast.Name):
            continue
        if item.target.id.startswith("_"):
            continue
        yield Field(
            name=item.target.id,
            annotation=_unquoted(item.annotation),
            default="" if item.value is None else ast.unparse(item.value),
            doc=_text_below(node.body[number + 1 : number + 2]),
        )


def _text_below(following: Sequence[ast.stmt]) -> str:
    """Return the text that stands below a field: its documentation; empty where there is none."""
    for node in following:
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            return " ".join(cleandoc(node.value.value).split())
    return ""


def _constructor(node: ast.ClassDef, tree: _Module) -> tuple[ast.FunctionDef, _Module] | None:
    """Return a class's constructor, or its first base's that has one, with the module in which it stands."""
    own = next((n for n in node.body if isinstance(n, ast.FunctionDef) and n.name == "__init__"), None)
    if own is not None:
        return own, tree
    for base in node.bases:
        name = ast.unparse(base)
        module = tree.name if name in tree.classes else tree.origin(name)
        place = tree if name in tree.classes else None if module is None else _tree(module)
        if place is not None and name in place.classes:
            found = _constructor(place.classes[name], place)
            if found is not None:
                return found
    return None
