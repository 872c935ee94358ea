"""Tokens of text by a tokenizer that lies in a folder; no code that lies beside it is run.

Nothing is fetched but by ``tokenizer_folder``, of a name of the hub, before a run.
"""

from __future__ import annotations

import hashlib
import importlib
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paceline.base.account import with_home
from paceline.base.errors import PrerequisiteError, UserError

FILE = "tokenizer.json"
OTHERS = ("tokenizer.model", "spiece.model", "vocab.json", "vocab.txt", "merges.txt", "tokenizer_config.json")
"""Files of tokenizers that only ``transformers`` reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokenizer:
    """A tokenizer of a folder."""

    name: str
    """Of the folder, or on the hub with the commit."""
    sha256: str
    """Of the files that decide what it does."""
    vocabulary: int
    """Tokens that it knows, with those that were added."""
    encode: Callable[[str, bool], tuple[int, ...]]
    """Token ids of a text; with the special tokens that it puts around a text, where the second argument says so."""

    def count(self, text: str) -> int:
        """Return the tokens of a text, without special ones."""
        return len(self.encode(text, False))

    def facts(self) -> dict[str, Any]:
        """Return what a record keeps of it."""
        return {"name": self.name, "sha256": self.sha256, "vocabulary": self.vocabulary}


def tokenizer_folder(given: str) -> Path:
    """Return where a tokenizer lies: as named, or the hub's, from its cache or fetched to there.

    Args:
        given: A path, or a name of the hub: ``NAME`` or ``OWNER/NAME``, with ``@REVISION`` or without.

    Raises:
        PrerequisiteError: The package that reads the hub is not installed.
        UserError: There is no such path, and the hub gives none of this name.
    """
    path = with_home(given)
    if path.exists():
        return path.absolute()
    if _HUB_NAME.fullmatch(given) is None:
        raise UserError("there is no such file or folder", where=f"--tokenizer={given}", expected=_EXPECTED)
    hub = _library("huggingface_hub", path)
    name, _, revision = given.partition("@")
    asked = {"repo_id": name, "revision": revision or None, "allow_patterns": [FILE, *OTHERS]}
    try:
        try:
            return Path(hub.snapshot_download(**asked))
        except Exception as first:  # no network, or none that leads to the hub
            with suppress(Exception):
                return Path(hub.snapshot_download(**asked, local_files_only=True))
            raise first from None  # and not that it is in no cache
    except Exception as error:  # of the library
        said = " ".join(str(error).split())[:300] or "no message"
        raise UserError(
            f"neither a folder here nor a tokenizer that the hub gives: {type(error).__name__}: {said}",
            where=f"--tokenizer={given}",
            expected=_EXPECTED,
            fix=f"where there is a network: hf download {name} --include 'tokenizer*' --local-dir FOLDER",
        ) from error


_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.\-]*(/[\w.\-]+)?(@[\w.\-/]+)?")
_EXPECTED = "the model's folder, its tokenizer.json, or its name on the hub, such as Qwen/Qwen3-0.6B"


def _name_of(folder: Path) -> str:
    """Return a folder's name; of a snapshot of the hub's cache the model's, with the commit."""
    kept = folder.parent.parent.name
    if folder.parent.name == "snapshots" and kept.startswith("models--"):
        return f"{kept.removeprefix('models--').replace('--', '/')}@{folder.name[:12]}"
    return folder.name


def wrong_path(path: str) -> str | None:
    """Say what is wrong with the name of a tokenizer; None where nothing is."""
    if Path(path).is_absolute():
        return None
    return f"tokenizer '{path}': a folder is named by its absolute path, jobs run in folders of their own"


def load_tokenizer(path: Path) -> Tokenizer:
    """Return the tokenizer of a folder, or of a ``tokenizer.json``.

    Raises:
        PrerequisiteError: The package that reads it is not installed.
        UserError: There is none, or it cannot be read.
    """
    file = path / FILE if path.is_dir() else path
    if file.is_file():
        return _of_file(file)
    others = [path / name for name in OTHERS if (path / name).is_file()]
    if others:
        return _of_folder(path, others)
    raise UserError(
        "there is no tokenizer",
        where=str(path),
        expected=f"a model's folder with {FILE} (or {', '.join(OTHERS)}), or that file",
        fix="where there is a network run: hf download NAME --include 'tokenizer*' --local-dir FOLDER",
    )


def _of_file(file: Path) -> Tokenizer:
    library = _library("tokenizers", file)
    try:
        core = library.Tokenizer.from_file(str(file))
    except Exception as error:  # of the library, on files of other people
        raise _unreadable(file, error) from error
    # Files may say that texts are cut or filled up to a length, as whoever trained with them did.
    core.no_truncation()
    core.no_padding()
    return Tokenizer(
        name=_name_of(file.parent),
        sha256=_digest([file]),
        vocabulary=core.get_vocab_size(with_added_tokens=True),
        encode=lambda text, special: tuple(core.encode(text, add_special_tokens=special).ids),
    )


def _of_folder(folder: Path, files: list[Path]) -> Tokenizer:
    library = _library("transformers", folder)
    try:
        core = library.AutoTokenizer.from_pretrained(
            str(folder), local_files_only=True, trust_remote_code=False
        )
    except Exception as error:  # of the library, on files of other people
        raise _unreadable(folder, error) from error
    return Tokenizer(
        name=_name_of(folder),
        sha256=_digest(files),
        vocabulary=len(core),
        encode=lambda text, special: tuple(
            core(text, add_special_tokens=special, truncation=False, verbose=False).input_ids
        ),
    )


def _library(name: str, where: Path) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise PrerequisiteError(
            f"a tokenizer needs the package {name}",
            where=str(where),
            fix="pip install 'paceline[hf]'",
        ) from error


def _unreadable(path: Path, error: Exception) -> UserError:
    said = " ".join(str(error).split()) or "no message"
    return UserError(
        f"the tokenizer cannot be read: {type(error).__name__}: {said}",
        where=str(path),
        expected=f"{FILE} as the package tokenizers writes it",
    )


def _digest(files: list[Path]) -> str:
    digest = hashlib.sha256()
    for path in sorted(files):
        # Name and size before the bytes: otherwise bytes could move from one file to the next unseen.
        digest.update(f"{path.name} {path.stat().st_size}\n".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()
