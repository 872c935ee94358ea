"""Rows of a data set, each with the place that it stands at: local files, and data sets of the hub.

Lines of JSON and of CSV are read here, so that a mistake is told with its line. Parquet is read in a process of its
own, which prints lines of JSON, as is what has another ending on the hub, by the library ``datasets``: ranks keep to
torch and numpy. A data set of the hub is one revision of its files, downloaded once; the hub's cache is asked by that
revision, with or without a network, and never answers with another one.
"""

from __future__ import annotations

import csv
import importlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paceline.base.errors import PrerequisiteError, UserError, expected_one_of
from paceline.families.reasoning.core.problems.folders import SPLITS, SUFFIXES, files_of, readable

MODULE = "paceline.families.reasoning.core.problems.rows"
TIME_LIMIT_S = 3600
PACKAGES = {"parquet": "pyarrow", "snapshot": "huggingface_hub", "folder": "datasets"}
"""By what a process reads, the package that it needs."""
MISSING = 3
"""Exit code of a process that finds no library."""
WITHOUT_TORCH = {"USE_TORCH": "0"}
"""What ``datasets`` reads; without it a process that streams rows imports torch where it is installed, for seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row."""

    where: str
    """File and line, or data set and row."""
    values: dict[str, Any]


Skip = Callable[[UserError], None]
"""Is told what is wrong with a row that is left out."""


def refuse(error: UserError) -> None:
    """Leave no row out.

    Raises:
        UserError: Always.
    """
    raise error


def rows(
    source: str,
    *,
    configurations: Sequence[str] = (),
    usual: str | None = None,
    split: str | None = None,
    skip: Skip = refuse,
) -> Iterator[Row]:
    """Yield the rows of a local file or folder, or of a data set of the hub as ``NAME@REVISION``.

    Args:
        source: What to read; a folder stands for the files that ``folders.files_of`` says.
        configurations: Parts of a data set, where it has several.
        usual: The part that is taken where none is named and it is there.
        split: Its split; None takes ``test``, or else ``train``.
        skip: Is told of each row that is none, which is left out where it returns.

    Raises:
        UserError: The source cannot be read, or a row is none.
        PrerequisiteError: ``datasets`` is needed and not installed.
    """
    path = Path(source)
    if path.is_file():
        _refuse_parts(source, configurations, split)
        yield from _of_file(path, skip)
        return
    if path.is_dir() and readable(path):
        for file in files_of(path, configurations=configurations, usual=usual, split=split):
            yield from _of_file(file, skip)
        return
    name, _, revision = source.rpartition("@")
    if path.exists() or path.suffix in SUFFIXES or not (name and revision):
        raise UserError(
            "the folder has no such file" if path.is_dir() else "there is no such file",
            where=source,
            expected=f"a file ending in {', '.join(SUFFIXES)}, a folder of such, or a data set of the hub as "
            "NAME@REVISION",
            fix="name a file, or a data set with the commit or tag to read",
        )
    yield from _of_hub(source, configurations, usual, split, skip)


def _refuse_parts(source: str, configurations: Sequence[str], split: str | None) -> None:
    """Refuse to choose a part of a file.

    Raises:
        UserError: One is asked for.
    """
    if configurations or split:
        option = "--configuration" if configurations else "--split"
        raise UserError(
            "one file has neither configurations nor splits",
            where=f"{option}={','.join(configurations) or split}",
            expected="a folder laid out as a data set of the hub, or NAME@REVISION",
            fix=f"leave {option} out, or name the folder that {source} is in",
        )


def _of_hub(
    source: str, configurations: Sequence[str], usual: str | None, split: str | None, skip: Skip
) -> Iterator[Row]:
    """Yield the rows of a revision: of its files here where they can be read here, else as the library reads them."""
    name, _, revision = source.rpartition("@")
    fix = (
        "where there is a network run: hf download --repo-type dataset "
        f"--revision {revision} {name}; or name a local file"
    )
    expected = "a network, or this revision in the hub's cache"
    (found,) = _by_library(source, ["snapshot", name, revision], expected, fix)
    folder = Path(found.values["folder"])
    if readable(folder):
        files = files_of(folder, configurations=configurations, usual=usual, split=split)
        if all(file.suffix in SUFFIXES for file in files):
            for file in files:
                yield from _of_file(file, skip)
            return
    for one in configurations or (usual or "",):
        yield from _by_library(source, ["folder", str(folder), one, split or ""], expected, fix)


def _of_file(path: Path, skip: Skip) -> Iterator[Row]:
    readers: dict[str, Callable[[Path, Skip], Iterator[Row]]] = {
        ".jsonl": _of_lines,
        ".json": _of_json,
        ".csv": _of_csv,
        ".parquet": _of_parquet,
    }
    if path.suffix not in readers:
        raise UserError(
            f"files ending in '{path.suffix}' are not read",
            where=str(path),
            expected=expected_one_of(path.suffix, SUFFIXES),
            fix="convert or rename the file",
        )
    yield from readers[path.suffix](path, skip)


def _of_lines(path: Path, skip: Skip) -> Iterator[Row]:
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        if line.strip():
            where = f"{path}:{number}"
            try:
                row = Row(where=where, values=_object(_parsed(_text(line, where), where), where))
            except UserError as error:
                skip(error)
                continue
            yield row


def _of_json(path: Path, skip: Skip) -> Iterator[Row]:
    """Yield the objects of one list, or the one object of a file; one that is neither is read as lines."""
    data = path.read_bytes()
    try:
        alone = json.loads(data.decode("utf-8-sig"), object_pairs_hook=_unique)
    except (ValueError, RecursionError):
        alone = None
    if isinstance(alone, dict):
        yield Row(where=str(path), values=alone)
        return
    if not data.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"["):
        yield from _of_lines(path, skip)
        return
    for number, value in enumerate(_parsed(_text(data, str(path)), str(path))):
        where = f"{path}:row {number}"
        try:
            row = Row(where=where, values=_object(value, where))
        except UserError as error:
            skip(error)
            continue
        yield row


def _of_csv(path: Path, skip: Skip) -> Iterator[Row]:
    text = _text(path.read_bytes(), str(path))
    first = text.partition("\n")[0]
    # Programs for tables write semicolons where the comma is the decimal sign.
    mark = next((one for one in (",", ";", "\t") if one in first), ",")
    reader = csv.reader(io.StringIO(text, newline=""), strict=True, delimiter=mark)
    try:
        names = next(reader, [])
        line = reader.line_num + 1
        for cells in reader:
            if cells and len(cells) != len(names):
                wrong = UserError(
                    f"{len(cells)} cells",
                    where=f"{path}:{line}",
                    expected=f"{len(names)}, as in the first line",
                    fix="put cells that hold commas or line ends into double quotes",
                )
                skip(wrong)
            elif cells:
                yield Row(where=f"{path}:{line}", values=dict(zip(names, cells, strict=True)))
            line = reader.line_num + 1
    except csv.Error as error:
        raise UserError(
            f"it is no CSV: {error}",
            where=f"{path}:{reader.line_num}",
            expected="cells separated by commas, semicolons or tabs, with a line of names first",
            fix="write the file again by a program for tables",
        ) from error


def _of_parquet(path: Path, skip: Skip) -> Iterator[Row]:
    return _by_library(
        str(path), ["parquet", str(path)], "a Parquet file", "download or write the file again"
    )


def _by_library(source: str, arguments: list[str], expected: str, fix: str) -> Iterator[Row]:
    """Yield the rows that a process with the library prints."""
    command = [sys.executable, "-m", MODULE, *arguments]
    try:
        # In a process of its own: ranks keep to torch and numpy, and nothing of the library stays in them.
        ended = subprocess.run(
            command,
            capture_output=True,
            timeout=TIME_LIMIT_S,
            check=False,
            env={**os.environ, **WITHOUT_TORCH},
        )
    except subprocess.TimeoutExpired as error:
        raise UserError(f"it was not read within {TIME_LIMIT_S} s", where=source, fix=fix) from error
    if ended.returncode == MISSING:
        raise PrerequisiteError(
            f"reading it needs the package {PACKAGES[arguments[0]]}",
            where=source,
            fix="pip install 'paceline[hf]'",
        )
    if ended.returncode:
        said = ended.stderr.decode(errors="replace").strip().splitlines()
        raise UserError(
            f"it cannot be read: {said[-1] if said else f'exit code {ended.returncode}'}",
            where=source,
            expected=expected,
            fix=fix,
        )
    for number, line in enumerate(ended.stdout.splitlines()):
        where = f"{source}:row {number}"
        yield Row(where=where, values=_object(_parsed(line.decode(), where), where))


def _text(data: bytes, where: str) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(
            f"byte {error.start} is no UTF-8", where=where, expected="text in UTF-8", fix="convert the file"
        ) from error


def _parsed(text: str, where: str) -> Any:
    try:
        # JSON takes the last of two equal keys in silence: a row with two answers must not pass.
        return json.loads(text, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise UserError(
            f"it is no JSON: {error}",
            where=where,
            expected="JSON, with every key of an object once",
            fix="correct the line, or write the file again by a program",
        ) from error


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the key '{next(n for n in names if names.count(n) > 1)}' is there twice")
    return found


def _object(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise UserError(
            f"it is {type(value).__name__}, and no row",
            where=where,
            expected="an object with the row's fields: {…}",
            fix="write one problem as one object",
        )
    return value


def _library_rows(arguments: list[str]) -> Iterator[dict[str, Any]]:
    """Yield what ``datasets`` reads; in the process of its own."""
    match arguments:
        case ["parquet", path]:
            parquet: Any = importlib.import_module("pyarrow.parquet")
            for batch in parquet.ParquetFile(path).iter_batches():
                yield from batch.to_pylist()
        case ["snapshot", name, revision]:
            hub: Any = importlib.import_module("huggingface_hub")
            yield {"folder": hub.snapshot_download(name, repo_type="dataset", revision=revision)}
        case ["folder", folder, config, split]:
            library: Any = importlib.import_module("datasets")
            found = library.load_dataset(folder, *filter(None, [config]), streaming=True)
            wanted = [split] if split else [*SPLITS, *found]
            taken = next((one for one in wanted if one in found), None)
            if taken is None:
                raise ValueError(f"it has no split '{split}'; there are: {', '.join(found)}")
            yield from found[taken]
        case _:
            raise AssertionError(arguments)


def main(arguments: list[str]) -> int:
    """Print rows as lines of JSON; what went wrong is the last line on standard error."""
    try:
        for row in _library_rows(arguments):
            print(json.dumps(row, default=str))
    except ImportError as error:
        print(error, file=sys.stderr)
        return MISSING
    except Exception as error:  # of libraries and files of other people
        print(f"{type(error).__name__}: {' '.join(str(error).split())}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
