"""Folders laid out as data sets of the hub are: which files a configuration and a split have.

A card (``README.md``) says it in the YAML at its beginning, under ``configs``, as the hub's own viewer reads it.
Without one, names say it, by the hub's conventions: ``main/test-00000-of-00001.parquet`` is the split ``test`` of
``main``.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from paceline.base.errors import UserError, expected_one_of

SUFFIXES = (".jsonl", ".json", ".parquet", ".csv")
SPLITS = ("test", "train")
"""Of which the first is taken that there is, unless one is named."""
WORDS = {
    "train": ("train", "training"),
    "validation": ("validation", "valid", "dev", "val"),
    "test": ("test", "testing", "eval", "evaluation"),
}
"""By split, the words that name it in a path, whole and between marks or digits."""
SHARD = re.compile(r"^(\w+(?:\.\w+)*)-[0-9]{5}-of-[0-9]{5,}$")
"""A file of ``data/`` whose split has any name."""
CARD = "README.md"

Parts = Mapping[str, Sequence[Path]]
"""By split: its files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    """What a folder has."""

    path: Path
    configurations: Mapping[str, Parts]
    declared: bool
    """A card says it; else names do."""
    default: str | None
    """Configuration that the card takes where none is named."""


def files_of(
    path: Path, *, configurations: Sequence[str] = (), usual: str | None = None, split: str | None = None
) -> list[Path]:
    """Return the files of a folder that are meant; without a card and without names of splits all of them.

    Args:
        path: The folder.
        configurations: Those asked for; none takes ``usual``, the card's default, or the only one.
        usual: The format's, taken where it is there.
        split: That asked for; None takes ``test``, or else ``train``, or the first.

    Raises:
        UserError: There is no such configuration, split or file, several of which none is usual, or a broken card.
    """
    folder = _folder(path)
    chosen = configurations or (_usual(folder, usual),)
    found: list[Path] = []
    for name in chosen:
        if name not in folder.configurations:
            raise _no_configuration(folder, name)
        files = _of_split(folder, name, split)
        if not files:
            raise UserError(
                f"the card names files for it, and the folder has none of them: {name or 'its only configuration'}",
                where=str(path),
                expected="all files of the data set's repository",
                fix=f"hf download --repo-type dataset NAME --local-dir {path}",
            )
        found += [one for one in files if one not in found]
    return found


def readable(path: Path) -> list[Path]:
    """Return the files of a folder that can be read, those of its folders too: MATH has a file for each problem."""
    found = (one for one in path.rglob("*") if one.suffix in SUFFIXES and one.is_file())
    return sorted(one for one in found if not any(p.startswith(".") for p in one.relative_to(path).parts))


def split_of(name: str) -> str | None:
    """Return the split that a path within a data set names; None where it names none."""
    path = PurePosixPath(name)
    sharded = SHARD.match(path.stem)
    if sharded and path.parts[:-1] == ("data",):
        return sharded[1]
    for part in (*path.parts[:-1], path.stem):
        words = set(re.split(r"[-._ 0-9]+", part.lower()))
        for split, known in WORDS.items():
            if words & set(known):
                return split
    return None


def _folder(path: Path) -> Folder:
    card = _card(path)
    if card:
        flagged = [name for name, one in card.items() if one.get("default") is True]
        default = flagged[0] if flagged else "default" if "default" in card else None
        return Folder(
            path=path,
            configurations={name: _declared(path, name, one) for name, one in card.items()},
            declared=True,
            default=default,
        )
    files = readable(path)
    below = {one.relative_to(path).parts[0] for one in files if len(one.relative_to(path).parts) > 1}
    names = sorted(one for one in below if one != "data" and split_of(f"{one}/x") is None)
    parts = {name: _by_names(path / name, readable(path / name)) for name in names}
    return Folder(
        path=path, configurations={"": _by_names(path, files), **parts}, declared=False, default=None
    )


def _by_names(path: Path, files: Sequence[Path]) -> Parts:
    """Return files by the split that their names say; under the empty name those that say none."""
    found: dict[str, list[Path]] = {}
    for one in files:
        found.setdefault(split_of(one.relative_to(path).as_posix()) or "", []).append(one)
    return found


def _card(path: Path) -> dict[str, dict[str, Any]]:
    """Return what the card says of each configuration; nothing without a card or where it says nothing."""
    card = path / CARD
    if not card.is_file():
        return {}
    text = card.read_text(encoding="utf-8", errors="replace")
    said = re.match(r"\A\ufeff?---\s*\n(.*?)\n---", text, re.DOTALL)
    if said is None:
        return {}
    # Of the command line's process: ranks keep to torch and numpy, and read no card.
    yaml: Any = importlib.import_module("yaml")
    try:
        head = yaml.safe_load(said[1])
        listed = head.get("configs") if isinstance(head, dict) else None
        said_of = {str(one.get("config_name", "default")): one for one in listed or ()}
        for one in said_of.values():
            list(_patterns(one.get("data_files")))
        return said_of
    except (yaml.YAMLError, AttributeError, TypeError, KeyError) as error:
        raise UserError(
            f"its YAML cannot be read: {type(error).__name__}: {' '.join(str(error).split())}",
            where=str(card),
            expected="configs: a list of config_name and data_files, as cards of the hub have it",
            fix="download the card again, or remove it: names of files say splits then",
        ) from error


def _declared(path: Path, name: str, said: Mapping[str, Any]) -> Parts:
    """Return the files of a configuration by the card's patterns; of a split without a file an empty list."""
    given, inside = said.get("data_files"), path / str(said.get("data_dir") or "")
    if given is None:
        return _by_names(inside, readable(inside))
    found: dict[str, list[Path]] = {}
    for split, pattern in _patterns(given):
        if ".." in PurePosixPath(pattern).parts or pattern.startswith("/"):
            raise UserError(
                f"the configuration '{name}' names files outside it: {pattern}",
                where=str(path / CARD),
                expected="patterns within the folder",
                fix="correct the card",
            )
        matched = sorted(one for one in inside.glob(pattern) if one.is_file())
        found.setdefault(split, []).extend(one for one in matched if one.name != CARD)
    return found


def _patterns(given: Any) -> Iterator[tuple[str, str]]:
    """Yield split and pattern of what cards have under ``data_files``: a text, a list, or one for each split."""
    if isinstance(given, dict):
        given = [{"split": split, "path": path} for split, path in given.items()]
    for one in given if isinstance(given, list) else [given]:
        split, paths = (one.get("split", "train"), one["path"]) if isinstance(one, dict) else ("train", one)
        for path in paths if isinstance(paths, list) else [paths]:
            yield str(split), str(path)


def _usual(folder: Folder, usual: str | None) -> str:
    """Return the configuration that is taken where none is named.

    Raises:
        UserError: There are several, and none is usual.
    """
    names = list(folder.configurations)
    known = [one for one in (usual, folder.default) if one in names]
    if known:
        return str(known[0])
    if len(names) == 1 or not folder.declared:
        return names[0]
    raise UserError(
        f"it has {len(names)} configurations, and none was named",
        where=str(folder.path),
        expected=f"one or more of: {', '.join(names)}",
        fix=f"--configuration={','.join(names[:2])}",
    )


def _no_configuration(folder: Folder, name: str) -> UserError:
    names = [one for one in folder.configurations if one]
    return UserError(
        f"it has no configuration '{name}'" + ("" if names else ", nor any other"),
        where=str(folder.path),
        expected=expected_one_of(name, names) if names else "a folder for each, or a card that names them",
        fix=f"--configuration={names[0]}" if names else "leave --configuration out",
    )


def _of_split(folder: Folder, name: str, split: str | None) -> Sequence[Path]:
    parts = folder.configurations[name]
    if split is not None:
        if split not in parts:
            known = [one for one in parts if one]
            of = f" in its configuration '{name}'" if name and len(folder.configurations) > 1 else ""
            raise UserError(
                f"it has no split '{split}'{of}; there are: {', '.join(known) or 'none'}",
                where=str(folder.path),
                expected=f"one of: {', '.join(known)}"
                if known
                else "files or folders whose names say splits",
                fix=f"--split={known[0]}" if known else "leave --split out",
            )
        return parts[split]
    if not folder.declared and ("" in parts or len(parts) == 1):
        # Some names say nothing, so that what the others say may be chance.
        return sorted(one for files in parts.values() for one in files)
    taken = next((one for one in (*SPLITS, *parts) if parts.get(one)), None)
    return parts[taken] if taken else ()
