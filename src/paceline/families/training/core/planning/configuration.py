"""Shapes of models from their ``config.json``, as folders of the hub have it: no weights, no network, no torch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paceline.base.account import with_home
from paceline.base.errors import UserError
from paceline.base.files.plain_data import loads
from paceline.families.training.api.sizes import (
    LETTERS,
    QKV_BIAS,
    SHAPE,
    UNTIED,
    Size,
    shape_of,
    shape_text,
)

HUB = "hf:"
KINDS = {"llama": False, "mistral": False, "qwen2": True}
"""By ``model_type``: whether queries, keys and values have biases."""
NUMBERS = {
    "layers": "num_hidden_layers",
    "width": "hidden_size",
    "heads": "num_attention_heads",
    "inner": "intermediate_size",
    "symbols": "vocab_size",
}
MOST_BYTES = 1 << 20


def wrong_size(text: str) -> str | None:
    """Say what is wrong with a size that is none of the family's; None where nothing is."""
    if text.startswith(HUB) and text != HUB:
        return None
    if not text.startswith(SHAPE):
        return f"'{text}' is not a legal size"
    try:
        shape_of(text)
    except ValueError as error:
        return str(error)
    return None


def written_out(size: str) -> str:
    """Return a size as a point holds it: that of a folder is written out, so that the point needs no folder.

    Raises:
        UserError: There is no such folder, or its model is of another kind than the family's.
    """
    return shape_text(read_shape(size.removeprefix(HUB))) if size.startswith(HUB) else size


def read_shape(folder: str) -> Size:
    """Read the shape of a model of Llama's or Qwen2's kind from its folder.

    Raises:
        UserError: There is none, or the model has parts that the family's does not have.
    """
    path = with_home(folder)
    file = path if path.name.endswith(".json") else path / "config.json"
    where = "size"
    try:
        if file.stat().st_size > MOST_BYTES:
            raise UserError(f"{file} is larger than {MOST_BYTES} bytes", where=where)
        found = loads(file.read_bytes())
    except OSError as error:
        raise UserError(
            f"{file} cannot be read: {error.strerror}",
            where=where,
            expected="a local folder with config.json; weights are not needed",
            fix=f"hf download {folder} config.json --local-dir FOLDER, and size: {HUB}FOLDER",
        ) from error
    except ValueError as error:
        raise UserError(f"{file} is no JSON: {error}", where=where) from error
    if not isinstance(found, dict):
        raise UserError(f"{file} holds no object", where=where, expected="a model's configuration")
    return _shape(found, file, where)


def _shape(found: Mapping[str, Any], file: Path, where: str) -> Size:
    kind = found.get("model_type")
    if kind not in KINDS:
        raise UserError(
            f"{file} is of a model of type {kind!r}",
            where=where,
            expected=f"one of: {', '.join(KINDS)}",
            fix="train it as a module of your own: docs/howto/train-your-own-model.md",
        )
    strange = [
        f"{key} {found[key]}"
        for key, usual in {
            "hidden_act": ("silu",),
            "mlp_bias": (False,),
            "attention_bias": (False,),
            "use_sliding_window": (False,),
        }.items()
        if found.get(key) not in (None, *usual)
    ]
    numbers = {name: found.get(key) for name, key in NUMBERS.items()}
    numbers["kv_heads"] = found.get("num_key_value_heads") or numbers["heads"]
    wrong = [NUMBERS.get(n, n) for n, value in numbers.items() if type(value) is not int or value < 1]
    if wrong:
        raise UserError(f"{file} has no whole number above zero for {', '.join(wrong)}", where=where)
    head = found.get("head_dim")
    if head is not None and head * numbers["heads"] != numbers["width"]:
        strange.append(f"head_dim {head}")
    if strange:
        raise UserError(
            f"{file} has {', '.join(strange)}, which the family's model does not have",
            where=where,
            fix="train it as a module of your own: docs/howto/train-your-own-model.md",
        )
    base = found.get("rope_theta") or (found.get("rope_parameters") or {}).get("rope_theta") or 10_000.0
    flags = [
        *([] if found.get("tie_word_embeddings") else [UNTIED]),
        *([QKV_BIAS] if KINDS[kind] else []),
    ]
    parts = [f"{key}{numbers[name]}" for key, name in LETTERS.items() if name in numbers]
    try:
        return shape_of(SHAPE + "-".join([*parts, f"rope{float(base):.0f}", *flags]))
    except (TypeError, ValueError) as error:
        raise UserError(f"{file}: {error}", where=where) from error
