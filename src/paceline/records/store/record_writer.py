"""Writes a run into a store, so that whatever is killed or full in the middle costs none of what was written."""

from __future__ import annotations

import fcntl
import hashlib
import os
from errno import EEXIST
from pathlib import Path

from paceline.base.errors import UserError
from paceline.records.format.record import Event, Line, Measurement, Run, dump_line, parse_line
from paceline.records.format.record_file import lines_of, plain_form, sync_folder, write_all, write_sealed
from paceline.records.identity import utc
from paceline.records.store.folder import partial_path, sealed_path
from paceline.records.store.manifest import add_to_manifest
from paceline.records.store.storage import storage_errors


class RecordWriter:
    """Writes one run: a plain partial file while it goes on, a sealed and compressed one at the end."""

    def __init__(self, root: Path, run: Run, *, resume: bool = False) -> None:
        self.root = root
        self.final = sealed_path(root, run)
        self.partial = partial_path(root, run)
        self.run_id = run.run_id
        self._resumes = resume
        self.seen: set[str] = set()
        """Record ids already in the file; a second write of one is ignored."""
        with storage_errors(self.partial, run_id=self.run_id, root=self.root):
            self.final.parent.mkdir(parents=True, exist_ok=True)
            end = self._read_back() if resume else 0
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | (0 if resume else os.O_EXCL)
            self._file = os.open(self.partial, flags | os.O_CLOEXEC, 0o644)
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not end:
            self.write(run)

    def _read_back(self) -> int:
        """Drop a torn last line, and a seal whose sealing did not end; remember what the file already holds.

        Returns:
            How many bytes it keeps; none when a full disk let the run line not be written.
        """
        data = self.partial.read_bytes()
        end = 0
        for raw in data[: data.rfind(b"\n") + 1].splitlines(keepends=True):
            line = parse_line(raw)
            if isinstance(line, Event) and line.kind == "seal":
                break
            end += len(raw)
            if isinstance(line, Measurement):
                self.seen.add(line.record_id)
        if end < len(data):
            os.truncate(self.partial, end)
        return end

    def write(self, *lines: Line) -> None:
        """Append lines; what was written survives the death of this process."""
        fresh = []
        for line in lines:
            if isinstance(line, Measurement):
                if line.record_id in self.seen:
                    continue
                self.seen.add(line.record_id)
            fresh.append(dump_line(line))
        if fresh:
            with storage_errors(self.partial, run_id=self.run_id, root=self.root):
                write_all(self._file, ("\n".join(fresh) + "\n").encode())

    def seal(self) -> Path:
        """Close the run: add the seal, flush to the disk, give the file its final name, enter it in the manifest."""
        with storage_errors(self.partial, run_id=self.run_id, root=self.root):
            digest = hashlib.sha256(self.partial.read_bytes()).hexdigest()
            self.write(Event(kind="seal", at=utc(), run_id=self.run_id, data={"sha256": digest}))
            os.fsync(self._file)
            data = self.partial.read_bytes()
            plain = plain_form(self.final)
            earlier = [path for path in (self.final, plain) if path.exists()]
            if not all(self._resumes and self._sealed_before(path, data) for path in earlier):
                raise FileExistsError(EEXIST, os.strerror(EEXIST), str(self.final))
            write_sealed(self.final, data, replace=self.final in earlier)
            plain.unlink(missing_ok=True)
            add_to_manifest(self.root, self.final)
            self.partial.unlink()
            sync_folder(self.final.parent)
            os.close(self._file)
        return self.final

    def _sealed_before(self, path: Path, data: bytes) -> bool:
        """Say whether a sealed file is of a sealing of this very run that was killed before its end."""
        if path.samefile(self.partial):  # an earlier version gave the partial file a second name
            return True
        try:
            *lines, _ = lines_of(path)
        except (UserError, ValueError):
            return False
        return data.startswith(b"".join(lines))

    def abandon(self) -> None:
        """Close the file and leave it partial, for ``--resume``."""
        os.close(self._file)
