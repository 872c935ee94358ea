"""Taking other stores in: a set union of sealed records, which several processes may do at once.

A record comes in whole, by its file's name, or not at all; its line in the manifest follows, and is added by the next
merge if this one dies in between. Of each source the measurements come first: a correction counts from when it came in,
and is about runs that are there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from paceline.base.errors import UserError
from paceline.records.format.contracts import unknown
from paceline.records.format.record import Event
from paceline.records.format.record_file import (
    PACKED,
    PLAIN,
    Problem,
    content_of,
    digest_of,
    run_id_of,
    write_sealed,
)
from paceline.records.store.folder import RunRecord, read_record, record_paths, sealed_path
from paceline.records.store.integrity import recompute
from paceline.records.store.manifest import Manifest, add_to_manifest, manifest_name, read_manifest
from paceline.records.store.storage import storage_errors

ABOUT_RUNS = ("retract", "annotate", "baseline_set")
"""Corrections that name a run."""
CORRECTIONS = (*ABOUT_RUNS, "waiver")


def merge(
    root: Path, sources: Iterable[Path], *, corrections: bool = False, unknown_contracts: bool = False
) -> tuple[int, list[Problem]]:
    """Copy other stores' sealed records into this one: a set union, refusing what does not hold.

    Args:
        root: The store that grows.
        sources: Other stores, or single record files.
        corrections: Take corrections that change what this store shows of its own runs or how its gate decides, too.
        unknown_contracts: Take metrics under contracts that this version does not know: who calls has measured them.

    Returns:
        The number of files added, and why others were refused.

    Raises:
        UserError: A source does not exist.
        InfrastructureError: The store has no room; what was added until then stays.
    """
    given = list(sources)
    for source in given:
        if not source.exists():
            raise UserError("no such store or record", where=str(source))
    merging = _Merging(
        root=root,
        corrections=corrections,
        unknown_contracts=unknown_contracts,
        manifest=read_manifest(root),
    )
    merging.present = {run_id_of(path): path for path in record_paths(root)}
    for paths in _sources(given):
        merging.take(paths)
    return merging.added, merging.problems


def _sources(given: Iterable[Path]) -> Iterator[list[Path]]:
    """Yield the files of each source; single files of one folder are one source."""
    singles: dict[Path, list[Path]] = {}
    for path in given:
        if path.is_dir():
            yield record_paths(path)
        else:
            singles.setdefault(path.parent, []).append(path)
    yield from singles.values()


@dataclass(slots=True, kw_only=True)
class _Merging:
    """A store that takes others in."""

    root: Path
    corrections: bool
    unknown_contracts: bool
    manifest: Manifest
    """As it was before."""
    present: dict[str, Path] = field(default_factory=dict)
    """The store's files by run id."""
    added: int = 0
    problems: list[Problem] = field(default_factory=list)

    def take(self, paths: Iterable[Path]) -> None:
        """Take one source in: first what was measured, then what is said about it."""
        own = frozenset(self.present)
        later: list[Path] = []
        for path in paths:
            with self._refusing(path):
                record = _sound(path, unknown_contracts=self.unknown_contracts)
                if any(event.kind in CORRECTIONS for event in record.events):
                    later.append(path)
                else:
                    self._add(path, record)
        for path in later:
            with self._refusing(path):
                record = _sound(path, unknown_contracts=self.unknown_contracts)
                if record.run_id not in own:
                    self._check_correction(record, own)
                self._add(path, record)

    @contextmanager
    def _refusing(self, path: Path) -> Iterator[None]:
        """Make of an error about one record a problem, after which the next one is taken."""
        try:
            yield
        except UserError as error:
            self.problems.append(Problem(path=str(path), what=error.what))

    def _add(self, path: Path, record: RunRecord) -> None:
        """Add a record, unless it is there; what an earlier merge left without its line in the manifest gets it.

        Raises:
            UserError: The store has, or had, other lines under its run id.
        """
        target = sealed_path(self.root, record.run)
        if record.run_id not in self.present:
            known = self.manifest.entries.get(manifest_name(self.root, target))
            if known is not None and known.sha256 != record.sha256:
                raise UserError("the manifest knows another file with the same run id, which is missing")
            with storage_errors(target):
                target.parent.mkdir(parents=True, exist_ok=True)
                with suppress(FileExistsError):  # another merge was faster, perhaps with other lines
                    write_sealed(target, content_of(path))
                    add_to_manifest(self.root, target)
                    self.present[record.run_id] = target
                    self.added += 1
                    return
        present = self.present.setdefault(record.run_id, target)
        try:
            same = digest_of(present)[0] == record.sha256
        except UserError as error:
            raise UserError(f"the store has this run already, and there {error.what}") from error
        if not same:
            raise UserError("another file with the same run id is already in the store")
        if manifest_name(self.root, present) not in self.manifest.entries:
            with storage_errors(present):
                add_to_manifest(self.root, present, once=True)

    def _check_correction(self, record: RunRecord, own: frozenset[str]) -> None:
        """Refuse a foreign correction about no run, or of what was decided here.

        Args:
            record: The correction.
            own: Runs that this store had before this source.

        Raises:
            UserError: It is not taken, and why.
        """
        for event in record.events:
            about = event.data.get("run_id")
            if event.kind in ABOUT_RUNS and about is not None and about not in self.present:
                raise UserError(
                    f"a correction about run {about}, which this store does not have; merge that one first"
                )
            if not self.corrections and (change := _change(event, own)) is not None:
                raise UserError(f"a correction that {change}; --corrections takes it")


def _sound(path: Path, *, unknown_contracts: bool) -> RunRecord:
    """Read a record that somebody else may have written.

    Raises:
        UserError: It does not hold what it says, or says what this version cannot hold against anything.
    """
    if path.is_symlink():
        raise UserError("a symbolic link", where=str(path))
    record = read_record(path)
    if not record.sealed:
        raise UserError("not sealed: the run is unfinished", where=str(path))
    if path.name not in (record.run_id + PLAIN, record.run_id + PACKED):
        raise UserError(f"the file name does not fit its run id {record.run_id}", where=str(path))
    for m in () if unknown_contracts else record.measurements:
        if (what := unknown(m.family, m.metric)) is not None:
            raise UserError(what, where=str(path))
    if wrong := recompute(record):
        raise UserError(wrong[0], where=str(path))
    return record


def _change(event: Event, own: frozenset[str]) -> str | None:
    """Say what a foreign event would change for this store's own runs or gate; None when nothing."""
    if event.kind == "retract" and event.data.get("run_id") in own:
        return f"retracts {event.data['run_id']} ({event.data.get('reason')})"
    if event.kind == "baseline_set":
        return f"sets the baseline run of {', '.join(map(str, event.data.get('suites', ())))}"
    if event.kind == "waiver":
        return f"waives regressions of {event.data.get('suite')}"
    return None
