"""Loads networks of ``transformers``, of a folder or a revision of the hub, under a name that says which they are.

A folder is named by a digest of its weights and settings, a model of the hub by its revision. Weights are read as
safetensors alone, and no code that lies beside them is run.
"""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from paceline.base.errors import PrerequisiteError, UserError
from paceline.families.reasoning.core.backends.network_facts import text_of
from paceline.families.reasoning.core.backends.transformers_model import TransformersModel

WEIGHTS = ("*.safetensors",)
DESCRIPTIONS = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
)
"""Files that decide, beside the weights, what a folder's model says."""


def load(
    name: str,
    *,
    dtype: torch.dtype = torch.float32,
    device: str = "cpu",
    attention: str = "sdpa",
    context: int | None = None,
) -> TransformersModel:
    """Return a model of a local folder, or of the hub as ``NAME@REVISION``; no code that lies beside it is run.

    Args:
        name: Folder, or name and commit or tag.
        dtype: Of weights and cache; see the module for what it means for equal draws.
        device: Of weights and cache.
        attention: ``sdpa`` or ``eager``.
        context: Most tokens of a trace; None takes what the network was made for.

    Raises:
        PrerequisiteError: ``transformers`` is not installed.
        UserError: The model cannot be read, or not be decoded over a cache.
    """
    library, path, given = _source(name)
    library.logging.disable_progress_bar()  # whose thread stays, where a technique may not start one
    try:
        tokenizer = library.AutoTokenizer.from_pretrained(path, **given)
        # No pickles: a weight file of somebody else must not be able to run anything.
        network = library.AutoModelForCausalLM.from_pretrained(
            path, dtype=dtype, attn_implementation=attention, use_safetensors=True, **given
        ).to(device)
    except Exception as error:  # of the library, on files of other people
        raise _unreadable(name, error) from error
    identity = name if given else f"{Path(path).resolve().name}-{_digest(Path(path))}"
    return TransformersModel(network, tokenizer, identity=identity, context=context)


def load_as(name: str, dtype: str, device: str) -> TransformersModel:
    """Return a model as ``load`` does, its type by name.

    Raises:
        PrerequisiteError: ``transformers`` is not installed.
        UserError: The type is none of weights, or what ``load`` refuses.
    """
    found = getattr(torch, dtype, None)
    if not isinstance(found, torch.dtype) or not found.is_floating_point:
        raise UserError(
            f"'{dtype}' is no type of weights",
            where=f"--dtype={dtype}",
            expected="float32, bfloat16, float16 or float64",
        )
    return load(name, dtype=found, device=device)


def load_decoder(name: str) -> Callable[[Sequence[int]], str]:
    """Return what makes text of the tokens of a model, without its network.

    Args:
        name: As for ``load``.

    Raises:
        PrerequisiteError: ``transformers`` is not installed.
        UserError: The tokenizer cannot be read.
    """
    library, path, given = _source(name)
    try:
        tokenizer = library.AutoTokenizer.from_pretrained(path, **given)
    except Exception as error:  # of the library, on files of other people
        raise _unreadable(name, error) from error
    return partial(text_of, tokenizer)


def _source(name: str) -> tuple[Any, str, dict[str, str]]:
    """Return the library, where the model is, and the revision where it is of the hub."""
    try:
        library: Any = importlib.import_module("transformers")
    except ImportError as error:
        raise PrerequisiteError(
            "local models need the package transformers", where=name, fix="pip install 'paceline[hf]'"
        ) from error
    local = bool(name) and Path(name).is_dir()
    # Without a revision the hub gives whatever is newest, and a record would name no weights.
    path, _, revision = (name, "", "") if local else name.rpartition("@")
    if not path or not (local or revision):
        raise UserError(
            "it is no folder here and names no revision",
            where=name,
            expected="a folder, or a model of the hub as NAME@REVISION, REVISION a commit or tag",
            fix="add the commit: nobody could load the same weights again without it",
        )
    return library, path, {} if local else {"revision": revision}


def _unreadable(name: str, error: Exception) -> UserError:
    said = " ".join(str(error).split()) or "no message"
    return UserError(
        f"the model cannot be read: {type(error).__name__}: {said}",
        where=name,
        expected="config.json, a tokenizer and weights as safetensors",
        fix="where there is a network run: hf download NAME --revision REVISION; or name a local folder",
    )


def _digest(folder: Path) -> str:
    """Return the beginning of the SHA-256 of all files of a folder that decide what its model says."""
    digest = hashlib.sha256()
    for path in sorted(p for pattern in (*WEIGHTS, *DESCRIPTIONS) for p in folder.glob(pattern)):
        # Name and size before the bytes: otherwise bytes could move from one file to the next unseen.
        digest.update(f"{path.name} {path.stat().st_size}\n".encode())
        with path.open("rb") as file:
            while part := file.read(1 << 22):
                digest.update(part)
    return digest.hexdigest()[:16]
