"""Tokens of text by a tokenizer that lies in a folder; nothing is fetched and no code that lies beside it is run."""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paceline.base.errors import PrerequisiteError, UserError

FILE = "tokenizer.json"
OTHERS = ("tokenizer.model", "spiece.model", "vocab.json", "vocab.txt", "merges.txt", "tokenizer_config.json")
"""Files of tokenizers that only ``transformers`` reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokenizer:
    """A tokenizer of a folder."""

    name: str
    """Of the folder."""
    sha256: str
    """Of the files that decide what it does."""
    vocabulary: int
    """Tokens that it knows, with those that were added."""
    encode: Callable[[str, bool], tuple[int, ...]]
    """Token ids of a text; with the special tokens that it puts around a text, where the second argument says so."""

    def facts(self) -> dict[str, Any]:
        """Return what a record keeps of it."""
        return {"name": self.name, "sha256": self.sha256, "vocabulary": self.vocabulary}


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
        name=file.parent.name,
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
        name=folder.name,
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
            f"tokens of conversations need the package {name}",
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
