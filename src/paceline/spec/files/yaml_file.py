"""YAML read from untrusted files, with the line of every key kept for error messages.

Anchors and aliases are refused (a few lines of them expand to gigabytes), duplicate keys are errors instead of silent
overrides, tags that build objects do not exist, and files above one mebibyte are not read. What YAML 1.1 and 1.2 read
differently is refused with its line (``yaml_versions``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from paceline.base.errors import UserError
from paceline.base.units import bounded
from paceline.spec.files.yaml_versions import core_float, doubt

MAX_BYTES = 1 << 20
MAX_DEPTH = 32

_MERGE = "tag:yaml.org,2002:merge"

KeyPath = tuple[str | int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Located:
    """Plain data from a YAML file and the line on which every key or item begins."""

    path: Path
    data: Any
    lines: dict[KeyPath, int]
    notes: tuple[str, ...] = ()
    """What a person should know of the file: names in it that were changed since."""

    def where(self, key_path: Sequence[str | int]) -> str:
        """Return ``file:line:key`` for a key path, falling back to the nearest parent that has a line."""
        parts = tuple(key_path)
        line = 1
        for length in range(len(parts), -1, -1):
            if parts[:length] in self.lines:
                line = self.lines[parts[:length]]
                break
        key = ".".join(str(p) for p in parts)
        return f"{self.path}:{line}:{key}" if key else f"{self.path}:{line}"


def load(path: Path) -> Located:
    """Read one YAML document.

    Raises:
        UserError: Missing or unreadable file, too large, not UTF-8, not YAML, aliases, duplicate keys, merge keys, too
            deep, or a scalar that YAML 1.1 and 1.2 read differently.
    """
    return parse(read_text(path), path)


def read_text(path: Path) -> str:
    """Read a bounded UTF-8 text file, turning every failure into a ``UserError``."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise UserError("the file is too large", where=str(path), expected=f"at most {MAX_BYTES} bytes")
        return data.decode("utf-8")
    except FileNotFoundError as error:
        raise UserError("no such file", where=str(path)) from error
    except IsADirectoryError as error:
        raise UserError("this is a folder, not a file", where=str(path)) from error
    except UnicodeDecodeError as error:
        raise UserError(f"not UTF-8 text (byte {error.start})", where=str(path)) from error
    except OSError as error:
        raise UserError(f"cannot read: {error.strerror}", where=str(path), fix=f"ls -l {path}") from error


def parse(text: str, path: Path) -> Located:
    """Parse YAML text; ``path`` only names it in messages."""
    try:
        _refuse_bombs(text, path)
        node = yaml.compose(text, Loader=yaml.CSafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        raise UserError(
            f"not valid YAML: {error.problem or error.context}", where=f"{path}:{line}"
        ) from error
    except yaml.YAMLError as error:
        raise UserError(f"not valid YAML: {error}", where=str(path)) from error
    if node is None:
        raise UserError("the file is empty", where=str(path))
    lines: dict[KeyPath, int] = {}
    data = _build(node, (), lines, path)
    return Located(path=path, data=data, lines=lines)


def _refuse_bombs(text: str, path: Path) -> None:
    """Stop at the first alias or at the first level too many: both cost the parser far more than the file is long."""
    depth = 0
    for event in yaml.parse(text, Loader=yaml.CSafeLoader):
        where = f"{path}:{event.start_mark.line + 1 if event.start_mark else 1}"
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            raise UserError(
                "anchors and aliases are not accepted: nested ones expand without bound",
                where=where,
                expected="the value written out",
            )
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            raise UserError("nested too deeply", where=where, expected=f"at most {MAX_DEPTH} levels")


def _build(node: yaml.Node, key_path: KeyPath, lines: dict[KeyPath, int], path: Path) -> Any:
    line = node.start_mark.line + 1
    lines.setdefault(key_path, line)
    if isinstance(node, yaml.MappingNode):
        mapping: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = key_node.value if isinstance(key_node, yaml.ScalarNode) else None
            key_line = key_node.start_mark.line + 1
            if key is None:
                raise UserError("a key must be plain text", where=f"{path}:{key_line}")
            if key in mapping:
                raise UserError(f"the key '{key}' appears twice", where=f"{path}:{key_line}:{key}")
            if key == "<<" and key_node.tag == _MERGE:
                raise UserError(
                    "merge keys are not accepted: YAML 1.2 has none",
                    where=f"{path}:{key_line}:{key}",
                    expected="the keys written out",
                )
            lines[(*key_path, key)] = key_line
            mapping[key] = _build(value_node, (*key_path, key), lines, path)
        return mapping
    if isinstance(node, yaml.SequenceNode):
        return [_build(item, (*key_path, i), lines, path) for i, item in enumerate(node.value)]
    assert isinstance(node, yaml.ScalarNode)
    return _scalar(node, path, ".".join(str(part) for part in key_path))


def _scalar(node: yaml.ScalarNode, path: Path, key: str) -> Any:
    loader = yaml.CSafeLoader("")
    where = f"{path}:{node.start_mark.line + 1}"
    try:
        value = loader.construct_object(node)
    except yaml.YAMLError as error:
        raise UserError(f"unknown YAML tag '{node.tag}'", where=where) from error
    except (ValueError, KeyError, AttributeError, OverflowError) as error:  # what PyYAML lets through
        kind = node.tag.rpartition(":")[2]
        raise UserError(f"'{node.value[:40]}' is not a legal {kind}", where=where) from error
    finally:
        loader.dispose()
    if not node.style:  # plain: quoted text is text in both versions
        doubtful = doubt(node.value, value)
        if doubtful is not None:
            raise UserError(
                doubtful.what, where=f"{where}:{key}" if key else where, expected=doubtful.expected
            )
        if isinstance(value, str) and (number := core_float(node.value)) is not None:
            return number
    if isinstance(value, int):
        try:
            return value if isinstance(value, bool) else bounded(value)
        except ValueError as error:
            raise UserError(str(error), where=f"{where}:{key}" if key else where) from None
    if isinstance(value, str | float) or value is None:
        return value
    return str(node.value)
