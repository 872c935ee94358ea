"""What a technique says about itself, readable without running it.

A technique is one registered implementation of one method. Its author writes ``@technique(...)`` above a class or a
factory, with literal arguments only. The worker imports the module and calls the factory; the control plane reads the
same arguments from the source with ``ast``, so validating, planning and rendering execute no foreign code and need no
torch.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, TypeVar

from paceline.base.errors import UserError, UserErrors, expected_one_of
from paceline.base.techniques.declarations import Place, filled, mistakes
from paceline.base.techniques.fidelity import Fidelity, card_of
from paceline.base.techniques.options import Option, arguments_in_source, options_in_source, options_of
from paceline.base.techniques.requirements import PACKAGE, PACKAGE_RULE, Requirements

NAME_RULE = "lower-case letters, digits and '-', with at most one 'vendor/' in front"

Factory = TypeVar("Factory", bound=Callable[..., Any])
Kind = TypeVar("Kind")


class UnsupportedError(Exception):
    """Raised by a technique that cannot run a point; its text is the reason in the record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Technique:
    """The metadata of one technique (see ``technique`` for the arguments)."""

    name: str
    family: str
    implements: tuple[str, ...]
    summary: str
    paper: str | None = None
    requires: Requirements = field(default_factory=Requirements)
    options: Mapping[str, Any] = field(default_factory=dict)
    """What a suite may set, with defaults: see ``paceline.base.techniques.options``."""
    properties: Mapping[str, Any] = field(default_factory=dict)
    """What it promises, as it was written; ``promised`` reads it."""
    fidelity: Fidelity | None = None
    """Of a technique of a paper: how near it is to it."""

    def promised(self, kind: type[Kind]) -> Kind:
        """Return what it promises of one kind; what it is silent about is as the kind has it by default.

        Args:
            kind: A frozen dataclass among the ``properties`` of an operation.
        """
        return filled(kind, self.properties)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TechniqueSource:
    """Where a technique was found: its metadata, file, line, digest and card (the module's docstring).

    A file that is read twice gives one and the same object, so that what was found out about it is remembered by it.
    """

    info: Technique
    path: Path
    line: int
    sha256: str
    module: str
    card: str
    lines: Mapping[str, int] = field(default_factory=dict)
    """Line of each argument of the decorator, and of each key in it, such as ``properties.exact``."""
    options: Mapping[str, Option] = field(default_factory=dict)
    arguments: tuple[str, ...] | None = None
    """Arguments of the constructor that have a default, options among them; None where they cannot be read."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Constants of the file that are literals."""

    def where(self, key: str) -> str:
        """Return ``file:line:key`` of an argument of the decorator or of a key in it."""
        return _where(str(self.path), self.line, self.lines, key)

    @property
    def repeated_options(self) -> str:
        """What to tell the author of a file that says ``options=``."""
        return f"{self.where('options')}: the constructor's keyword-only parameters declare options; leave options= out"

    def keys(self, argument: str) -> list[str]:
        """Return the keys that an argument of the decorator, which is a dict, was given."""
        names = (name.split(".") for name in self.lines)
        return [parts[1] for parts in names if parts[0] == argument and len(parts) == 2]


REGISTRY: dict[tuple[str, str], tuple[Technique, Callable[..., Any]]] = {}
"""(family, name) → metadata and factory of every technique whose module was imported in this process."""


def technique(
    *,
    name: str,
    family: str,
    implements: tuple[str, ...],
    summary: str,
    paper: str | None = None,
    requires: Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | None = None,
    properties: Mapping[str, Any] | None = None,
    fidelity: Mapping[str, Any] | None = None,
) -> Callable[[Factory], Factory]:
    """Register the class or factory below as a technique. All arguments must be literals.

    Args:
        name: Unique within the family; lower-case words joined by '-', third parties prefix ``vendor/``.
        family: The family whose contract the factory fulfils.
        implements: The family's operations or workloads that it can run.
        summary: One line for tables.
        paper: Slug in ``papers.yaml``, or None when the method is common property.
        requires: Keys of the ``requirements`` of its operations.
        options: Of files of earlier versions: what the constructor's keyword-only parameters say.
        properties: What it promises, and so has to prove: keys of the ``properties`` of its operations.
        fidelity: Of a technique of a paper: its card (see ``paceline.base.techniques.fidelity``).
    """
    fields = {
        "name": name,
        "family": family,
        "implements": tuple(implements),
        "summary": summary,
        "paper": paper,
        "requires": requires,
        "properties": properties,
        "fidelity": fidelity,
    }

    def register(factory: Factory) -> Factory:
        found = options_of(factory) if options is None else options
        info = build(fields | {"options": found}, at=lambda key: f"{name}:{key}" if key else name)
        REGISTRY[(info.family, info.name)] = (info, factory)
        return factory

    return register


def build(fields: Mapping[str, Any], *, at: Place) -> Technique:
    """Make checked metadata from decorator arguments.

    Args:
        fields: The arguments by name.
        at: The place of an argument or of a key in one; of the decorator for an empty key.

    Raises:
        UserError: A missing or unknown argument, a bad name, or a requirement that is unknown or ill-typed.
    """
    known = set(Technique.__dataclass_fields__)
    for key in fields:
        if key not in known:
            raise UserError(
                f"unknown argument '{key}' of @technique", where=at(key), expected=expected_one_of(key, known)
            )
    for key in ("name", "family", "implements", "summary"):
        if not fields.get(key):
            raise UserError(f"@technique lacks '{key}'", where=at(""), expected=f"a literal {key}")
    name = str(fields["name"])
    if not valid_name(name):
        raise UserError(f"'{name}' is not a technique name", where=at("name"), expected=NAME_RULE)
    _refuse_no_dict(fields, at)
    requires = dict(fields.get("requires") or {})
    wrong = list(
        mistakes(
            requires,
            [Requirements],
            noun="requirement",
            whose="techniques have",
            at=lambda key: at(f"requires.{key}"),
        )
    )
    if wrong:
        raise wrong[0] if len(wrong) == 1 else UserErrors(wrong)
    for package in requires.get("packages", ()):
        if PACKAGE.fullmatch(package) is None:
            raise UserError(
                f"'{package}' is no package to require", where=at("requires.packages"), expected=PACKAGE_RULE
            )
    return Technique(
        name=name,
        family=str(fields["family"]),
        implements=tuple(fields["implements"]),
        summary=str(fields["summary"]),
        paper=fields.get("paper"),
        requires=filled(Requirements, requires),
        options=dict(fields.get("options") or {}),
        properties=dict(fields.get("properties") or {}),
        fidelity=None if fields.get("fidelity") is None else card_of(fields["fidelity"], at=at),
    )


def _refuse_no_dict(fields: Mapping[str, Any], at: Place) -> None:
    for key in ("requires", "options", "properties"):
        if not isinstance(fields.get(key) or {}, Mapping):
            raise UserError(f"'{key}' of @technique is no dict", where=at(key), expected="a dict by name")


def valid_name(name: str) -> bool:
    """Tell whether a name is safe in file names, URLs and tables."""
    parts = name.split("/")
    return len(parts) <= 2 and all(
        part
        and part[0].isalnum()
        and all(c.isascii() and (c.islower() or c.isdigit() or c == "-") for c in part)
        for part in parts
    )


def read_source(path: Path, *, module: str) -> list[TechniqueSource]:
    """Return the techniques that a Python file declares, without importing it.

    Raises:
        UserError: The file cannot be read or parsed, or a decorator's argument is not a literal.
    """
    try:
        text = path.read_bytes()
    except OSError as error:
        raise UserError(f"cannot read the technique file: {error.strerror}", where=str(path)) from error
    return list(_declared(text, path, module))


@lru_cache(maxsize=4096)
def _declared(text: bytes, path: Path, module: str) -> tuple[TechniqueSource, ...]:
    """Parse a file once, however many suites of its family are read."""
    try:
        tree = ast.parse(text, filename=str(path))
    except SyntaxError as error:
        raise UserError(f"not valid Python: {error.msg}", where=f"{path}:{error.lineno}") from error
    digest = hashlib.sha256(text).hexdigest()
    card = ast.get_docstring(tree) or ""
    settings = _settings(tree)
    found: list[TechniqueSource] = []
    for node in tree.body:
        if not isinstance(node, ast.ClassDef | ast.FunctionDef):
            continue
        for decorator in node.decorator_list:
            if _is_technique_call(decorator):
                assert isinstance(decorator, ast.Call)
                lines = _lines(decorator)
                at = partial(_where, str(path), decorator.lineno, lines)
                fields = _literal_arguments(decorator, at)
                _refuse_no_dict(fields, at)
                options = options_in_source(node, lambda key: f"{path}:{key}", fields.get("options"))
                info = build(fields | {"options": {n: o.default for n, o in options.items()}}, at=at)
                found.append(
                    TechniqueSource(
                        info=info,
                        path=path,
                        line=decorator.lineno,
                        sha256=digest,
                        module=module,
                        card=card,
                        lines=lines,
                        options=options,
                        arguments=arguments_in_source(node),
                        settings=settings,
                    )
                )
    return tuple(found)


def _settings(tree: ast.Module) -> dict[str, Any]:
    """Return the constants that a module gives a literal value, by name."""
    found: dict[str, Any] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target, value = node.targets[0], node.value
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            target, value = node.target, node.value
        else:
            continue
        if isinstance(target, ast.Name):
            try:
                found[target.id] = ast.literal_eval(value)
            except ValueError:
                continue
    return found


def _is_technique_call(node: ast.expr) -> bool:
    if not isinstance(node, ast.Call):
        return False
    function = node.func
    name = function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")
    return name == "technique"


def _where(path: str, line: int, lines: Mapping[str, int], key: str) -> str:
    """Return ``file:line:key``, on the line of the nearest key around it that has one."""
    parts = key.split(".") if key else []
    around = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
    found = next((lines[name] for name in around if name in lines), line)
    return f"{path}:{found}:{key}" if key else f"{path}:{found}"


def _lines(call: ast.Call) -> dict[str, int]:
    """Return the line of each argument of a call, and of each key of a dict in it."""
    found: dict[str, int] = {}

    def note(name: str, line: int, value: ast.expr) -> None:
        found[name] = line
        if isinstance(value, ast.Dict):
            for key, inner in zip(value.keys, value.values, strict=True):
                if isinstance(key, ast.Constant) and isinstance(key.value, str):
                    note(f"{name}.{key.value}", key.lineno, inner)

    for keyword in call.keywords:
        if keyword.arg is not None:
            note(keyword.arg, keyword.lineno, keyword.value)
    return found


def _literal_arguments(call: ast.Call, at: Place) -> dict[str, Any]:
    if call.args:
        raise UserError("@technique takes keyword arguments only", where=at(""))
    fields: dict[str, Any] = {}
    for keyword in call.keywords:
        if keyword.arg is None:
            raise UserError("@technique does not take **arguments", where=at(""))
        try:
            fields[keyword.arg] = ast.literal_eval(keyword.value)
        except ValueError as error:
            raise UserError(
                f"argument '{keyword.arg}' of @technique is not a literal",
                where=at(keyword.arg),
                expected="a plain string, number, tuple, list or dict: it is read without running the file",
            ) from error
    return fields
