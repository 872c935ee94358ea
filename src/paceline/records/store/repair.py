"""Rebuilding the manifest of a store from its sealed files; no record is written, moved or removed.

What the manifest says of a file that is there no more stays: it is all that tells that something is missing. A sealed
record without a line gets one, before all others, so that a correction about it goes on counting; a correction without
a line gets one behind all others, for the same reason.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from paceline.base.errors import UserError
from paceline.records.format.record_file import Problem, digest_of
from paceline.records.store.folder import check_place, read_record, record_paths
from paceline.records.store.integrity import recompute, verify
from paceline.records.store.manifest import (
    MANIFEST,
    Entry,
    Manifest,
    entry_of,
    locked,
    manifest_name,
    read_manifest,
    replace_manifest,
)
from paceline.records.store.storage import storage_errors


@dataclass(slots=True, kw_only=True)
class Repaired:
    """What ``repair`` found."""

    added: list[str] = field(default_factory=list)
    """Sealed records that had no line in the manifest."""
    dropped: list[Problem] = field(default_factory=list)
    """Lines that were none, and why."""
    repeated: int = 0
    """Lines that stood there before, word for word."""
    left: list[Problem] = field(default_factory=list)
    """What is wrong yet, as ``verify`` says it."""


def repair(root: Path) -> Repaired:
    """Give a store a manifest that lists each of its sound records once, and say what it cannot mend.

    Raises:
        UserError: The manifest is no plain file, or the store cannot be written.
    """
    done = Repaired()
    missing = _without_line(root, read_manifest(root))
    with storage_errors(root / MANIFEST), locked(root):
        manifest = read_manifest(root)
        kept = _kept(root, manifest, done)
        new = [(entry, last) for entry, last in missing if entry.path not in manifest.entries]
        done.added = [entry.path for entry, _ in new]
        if done.added or done.dropped or done.repeated:
            first, last = ([e for e, at_end in new if at_end is end] for end in (False, True))
            replace_manifest(root, [*first, *kept, *last])
    done.left = verify(root)
    return done


def _without_line(root: Path, manifest: Manifest) -> list[tuple[Entry, bool]]:
    """Return the lines that sound records lack, each with whether it belongs to a correction."""
    found: dict[str, tuple[Entry, bool]] = {}
    for path in record_paths(root):
        name = manifest_name(root, path)
        if name in manifest.entries or name in found:
            continue
        try:
            record = read_record(path)
            check_place(root, record)
            if not recompute(record):
                found[name] = entry_of(root, path), record.run.reason == "correction"
        except UserError:  # ``verify`` names it
            continue
    return list(found.values())


def _kept(root: Path, manifest: Manifest, done: Repaired) -> list[Entry]:
    """Return the manifest's lines without those that are illegal, repeated, or contradict the file that they name."""
    told: dict[str, list[Entry]] = defaultdict(list)
    for entry in manifest.lines:
        if entry in told[entry.path]:
            done.repeated += 1
        else:
            told[entry.path].append(entry)
    done.dropped += manifest.illegal
    right = {name: _fitting(root, entries) for name, entries in told.items()}
    for name, entries in told.items():
        if len(entries) > 1 and len(right[name]) == 1:
            wrong = len(entries) - 1
            done.dropped.append(
                Problem(path=name, what=f"{wrong} of its lines say another digest than its file")
            )
    return [entry for name in told for entry in right[name]]


def _fitting(root: Path, entries: list[Entry]) -> list[Entry]:
    """Of several lines about one file return the one that fits it; all of them where none does."""
    if len(entries) > 1:
        digests = {
            _digest(path) for path in record_paths(root) if manifest_name(root, path) == entries[0].path
        }
        for entry in entries:
            if entry.sha256 in digests:
                return [entry]
    return entries


def _digest(path: Path) -> str | None:
    try:
        return digest_of(path)[0]
    except UserError:
        return None
