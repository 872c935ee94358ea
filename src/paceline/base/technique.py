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
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from paceline.base.errors import UserError

NAME_RULE = "lower-case letters, digits and '-', with at most one 'vendor/' in front"
_REQUIREMENTS = ("min_ranks", "max_ranks", "power_of_two_ranks", "dtypes", "devices", "packages")

Factory = TypeVar("Factory", bound=Callable[..., Any])


class UnsupportedError(Exception):
    """Raised by a technique that cannot run a point; its text is the reason in the record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirements:
    """What a case must offer before a technique can run; checked at planning time."""

    min_ranks: int = 1
    max_ranks: int | None = None
    power_of_two_ranks: bool = False
    dtypes: tuple[str, ...] = ()
    """Accepted dtypes; empty means every dtype of the family."""
    devices: tuple[str, ...] = ()
    """Accepted device types (cpu, cuda, npu); empty means every device."""
    packages: tuple[str, ...] = ()
    """Importable packages beyond torch and numpy."""

    def unmet(self, *, ranks: int | None, dtype: str | None, device: str | None) -> str | None:
        """Say why a case cannot run, or None when every requirement holds; unknown facts are not judged."""
        if ranks is not None:
            if ranks < self.min_ranks:
                return f"needs at least {self.min_ranks} ranks"
            if self.max_ranks is not None and ranks > self.max_ranks:
                return f"needs at most {self.max_ranks} ranks"
            if self.power_of_two_ranks and ranks & (ranks - 1):
                return f"needs a power of two of ranks, not {ranks}"
        if dtype is not None and self.dtypes and dtype not in self.dtypes:
            return f"supports {', '.join(self.dtypes)}, not {dtype}"
        if device is not None and self.devices and device not in self.devices:
            return f"needs {' or '.join(self.devices)}, not {device}"
        return None


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
    properties: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TechniqueSource:
    """Where a technique was found: its metadata, file, line, digest and card (the module's docstring)."""

    info: Technique
    path: Path
    line: int
    sha256: str
    module: str
    card: str


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
) -> Callable[[Factory], Factory]:
    """Register the class or factory below as a technique. All arguments must be literals.

    Args:
        name: Unique within the family; lower-case words joined by '-', third parties prefix ``vendor/``.
        family: The family whose contract the factory fulfils.
        implements: The family's operations or workloads that it can run.
        summary: One line for tables.
        paper: Slug in ``papers.yaml``, or None when the method is common property.
        requires: Keys of ``Requirements``.
        options: Names and defaults of options that a suite may set.
        properties: Facts that the family's oracle needs (each family documents its own).
    """
    info = build(
        {
            "name": name,
            "family": family,
            "implements": tuple(implements),
            "summary": summary,
            "paper": paper,
            "requires": requires,
            "options": options,
            "properties": properties,
        },
        where=name,
    )

    def register(factory: Factory) -> Factory:
        REGISTRY[(info.family, info.name)] = (info, factory)
        return factory

    return register


def build(fields: Mapping[str, Any], *, where: str) -> Technique:
    """Make checked metadata from decorator arguments.

    Raises:
        UserError: A missing or unknown argument, a bad name, or an unknown requirement.
    """
    known = set(Technique.__dataclass_fields__)
    for key in fields:
        if key not in known:
            raise UserError(
                f"unknown argument '{key}' of @technique",
                where=where,
                expected=f"one of: {', '.join(sorted(known))}",
            )
    for key in ("name", "family", "implements", "summary"):
        if not fields.get(key):
            raise UserError(f"@technique lacks '{key}'", where=where, expected=f"a literal {key}")
    name = str(fields["name"])
    if not valid_name(name):
        raise UserError(f"'{name}' is not a technique name", where=where, expected=NAME_RULE)
    requires = dict(fields.get("requires") or {})
    for key in requires:
        if key not in _REQUIREMENTS:
            raise UserError(
                f"unknown requirement '{key}'",
                where=where,
                expected=f"one of: {', '.join(_REQUIREMENTS)}",
            )
    for key in ("dtypes", "devices", "packages"):
        if key in requires:
            requires[key] = tuple(requires[key])
    return Technique(
        name=name,
        family=str(fields["family"]),
        implements=tuple(fields["implements"]),
        summary=str(fields["summary"]),
        paper=fields.get("paper"),
        requires=Requirements(**requires),
        options=dict(fields.get("options") or {}),
        properties=dict(fields.get("properties") or {}),
    )


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
    found: list[TechniqueSource] = []
    for node in tree.body:
        if not isinstance(node, ast.ClassDef | ast.FunctionDef):
            continue
        for decorator in node.decorator_list:
            if _is_technique_call(decorator):
                assert isinstance(decorator, ast.Call)
                where = f"{path}:{decorator.lineno}"
                info = build(_literal_arguments(decorator, where), where=where)
                found.append(
                    TechniqueSource(
                        info=info,
                        path=path,
                        line=decorator.lineno,
                        sha256=digest,
                        module=module,
                        card=card,
                    )
                )
    return tuple(found)


def _is_technique_call(node: ast.expr) -> bool:
    if not isinstance(node, ast.Call):
        return False
    function = node.func
    name = function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")
    return name == "technique"


def _literal_arguments(call: ast.Call, where: str) -> dict[str, Any]:
    if call.args:
        raise UserError("@technique takes keyword arguments only", where=where)
    fields: dict[str, Any] = {}
    for keyword in call.keywords:
        if keyword.arg is None:
            raise UserError("@technique does not take **arguments", where=where)
        try:
            fields[keyword.arg] = ast.literal_eval(keyword.value)
        except ValueError as error:
            raise UserError(
                f"argument '{keyword.arg}' of @technique is not a literal",
                where=f"{where}:{keyword.arg}",
                expected="a plain string, number, tuple, list or dict: it is read without running the file",
            ) from error
    return fields
