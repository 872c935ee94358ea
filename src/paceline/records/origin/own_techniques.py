"""The source of a user's own technique in the record of its run, so that the run can be measured again."""

from __future__ import annotations

import hashlib
from collections.abc import Container, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from paceline.base.redaction import redact_source
from paceline.base.techniques.technique import TechniqueSource
from paceline.records.format.record import Run

OWN = "user:"
"""How the module of a technique begins that was given as a file."""
MAX_SOURCE_BYTES = 128 << 10


def source_facts(source: TechniqueSource) -> dict[str, Any]:
    """Return what a record keeps of a technique's source beside its digest: of a user's own file its text."""
    if not source.module.startswith(OWN):
        return {}
    return text_of(source.path, source.sha256)


def text_of(path: Path, sha256: str) -> dict[str, Any]:
    """Return a file's text for a record, or why it is left out.

    Args:
        path: The file.
        sha256: What it was when the plan was made.
    """
    data = path.read_bytes()
    if len(data) > MAX_SOURCE_BYTES:
        return {"text_left_out": f"{len(data)} bytes; a record keeps {MAX_SOURCE_BYTES}"}
    text = data.decode("utf-8", "replace")
    if hashlib.sha256(data).hexdigest() != sha256:
        return {"text_left_out": "the file was changed meanwhile"}
    if redact_source(text) != text or text.encode() != data:
        return {
            "text_left_out": "it holds a path of a home folder, what looks like a secret, or bytes that are no text"
        }
    return {"text": text}


def write_sources(run: Run, used: Container[str], folder: Path) -> tuple[list[Path], list[str]]:
    """Write the users' techniques of a run into a folder.

    Args:
        run: Whose record may be another person's.
        used: Which techniques are wanted, as ``family/technique``.
        folder: An empty one.

    Returns:
        The files, each with the digest that the record names, and why others cannot be written.
    """
    files, missing = [], []
    for name, facts in sorted(run.techniques.items()):
        if name not in used or not str(facts.get("module", "")).startswith(OWN):
            continue
        reason = _why_not(facts)
        if reason is not None:
            missing.append(f"technique {name}: the record does not hold its file: {reason}")
            continue
        path = folder / PurePosixPath(str(facts["file"])).name
        path.write_bytes(str(facts["text"]).encode("utf-8"))
        if path not in files:
            files.append(path)
    return files, missing


def _why_not(facts: Mapping[str, Any]) -> str | None:
    text = facts.get("text")
    if not isinstance(text, str):
        return str(facts.get("text_left_out") or "it was made by an earlier version")
    if hashlib.sha256(text.encode("utf-8", "replace")).hexdigest() != facts.get("sha256"):
        return "its text does not fit its digest"
    name = PurePosixPath(str(facts.get("file"))).name
    return None if name.endswith(".py") and name.removesuffix(".py") else "it has no name of a Python file"
