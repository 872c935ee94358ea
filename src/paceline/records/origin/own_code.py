"""A user's own models and data in the record of their run: each file's text, so that it can be measured again."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from paceline.base.files.own_code import INSTALLED
from paceline.records.format.parts import OwnCode, OwnFile
from paceline.records.format.record import Run
from paceline.records.origin.own_techniques import text_of
from paceline.spec.own.code import SOURCES, all_code, named_code
from paceline.spec.suites.suite import Suite

OWN: Literal["own_code"] = "own_code"
"""Key of a suite's facts."""


def own_code_facts(suite: Suite, blocks: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return digest and text of each file that points name, by the points' digest; empty where they name none."""
    facts: dict[str, Any] = {}
    for digest, code in all_code(suite, blocks).items():
        named = next(
            named_code(suite.family, b["params"]) for b in blocks if b["params"].get(SOURCES) == digest
        )
        files = {}
        for name, path in sorted(code.files.items()):
            sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
            files[name] = {"sha256": sha256, **text_of(path, sha256)}
        facts[digest] = {"names": named, "files": files}
    return facts


def write_code(run: Run, suite: str, folder: Path) -> tuple[list[str], list[str]]:
    """Write the users' models and data of a suite's points into a folder, as they lay beside the suite.

    Args:
        run: Whose record may be another person's.
        suite: Its name.
        folder: An empty one.

    Returns:
        The files' names, and why others cannot be written.
    """
    written: list[str] = []
    missing: list[str] = []
    for digest, code in _code_of(run, suite).items():
        for name, file in sorted(code["files"].items()):
            if name.startswith(INSTALLED):
                continue
            place = _place(name, code["names"])
            reason = _why_not(place, file)
            if reason is None and (folder / place).exists() and (folder / place).read_text() != file["text"]:
                reason = "two points have different files of this name"
            if reason is not None:
                missing.append(f"code {digest}: the record does not hold {place}: {reason}")
                continue
            (folder / place).parent.mkdir(parents=True, exist_ok=True)
            (folder / place).write_bytes(file["text"].encode("utf-8"))
            written.append(str(place))
    return written, missing


def _code_of(run: Run, suite: str) -> Mapping[str, OwnCode]:
    for facts in run.suites:
        if facts["suite"] == suite:
            return facts.get(OWN) or {}
    return {}


def _place(name: str, named: Mapping[str, str]) -> PurePosixPath:
    """Return where a file lies below the suite's folder: beside the file that a point names, or below that."""
    number, _, rest = name.partition("/")
    roots: list[PurePosixPath] = []
    for _, text in sorted(named.items()):
        module = text.rpartition(":")[0]
        root = PurePosixPath(module).parent if module.endswith(".py") else PurePosixPath(".")
        if root not in roots:
            roots.append(root)
    at = roots[int(number)] if number.isdecimal() and int(number) < len(roots) else PurePosixPath("..")
    return at / rest


def _why_not(place: PurePosixPath, file: OwnFile) -> str | None:
    text = file.get("text")
    if text is None:
        return file.get("text_left_out") or "it was left out"
    if hashlib.sha256(text.encode("utf-8", "replace")).hexdigest() != file["sha256"]:
        return "its text does not fit its digest"
    if place.is_absolute() or ".." in place.parts or place.suffix != ".py":
        return "it is no Python file below the suite's folder"
    return None
