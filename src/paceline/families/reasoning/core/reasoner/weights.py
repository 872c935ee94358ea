"""Weight files in the safetensors format, read and written with the standard library and torch alone.

The format (huggingface/safetensors, "Format"): eight bytes, the header's length, unsigned and little-endian; the
header, a JSON object that gives each tensor's ``dtype``, ``shape`` and ``data_offsets``, and text under
``__metadata__``; the tensors' bytes, little-endian, without a gap. Any reader of the format opens these files, and
nothing in them can run.

Weights are kept as float16, which halves the files; what was evaluated is what was kept, since evaluation reads the
file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from paceline.families.reasoning.core.reasoner.network import Network, Shape

LENGTH_BYTES = 8
MAX_HEADER_BYTES = 100_000_000
"""The format's own limit."""
DTYPES: dict[str, np.dtype[Any]] = {"F16": np.dtype("<f2"), "F32": np.dtype("<f4"), "F64": np.dtype("<f8")}
STORED = "F16"
METADATA = "__metadata__"
DIGEST_LENGTH = 12
"""Hexadecimal digits of a digest that name a file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """The content of a file."""

    tensors: Mapping[str, Tensor]
    metadata: Mapping[str, str]
    digest: str
    """First digits of the SHA-256 of the whole file."""


def pack(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> bytes:
    """Return a file's bytes; tensors are rounded to float16."""
    header: dict[str, Any] = {METADATA: dict(metadata)}
    parts = []
    offset = 0
    # Sorted, so that equal weights give equal bytes and one digest.
    for name in sorted(tensors):
        data = tensors[name].detach().numpy().astype(DTYPES[STORED]).tobytes()
        header[name] = {
            "dtype": STORED,
            "shape": list(tensors[name].shape),
            "data_offsets": [offset, offset + len(data)],
        }
        offset += len(data)
        parts.append(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    # The format asks that data begin at a multiple of eight, and allows spaces behind the header for it.
    text += b" " * (-len(text) % LENGTH_BYTES)
    return b"".join((len(text).to_bytes(LENGTH_BYTES, "little"), text, *parts))


def unpack(content: bytes) -> Weights:
    """Return what a file's bytes hold, at the precision of the file.

    Raises:
        ValueError: They are not in the format: how, and where.
    """
    header, data = _split(content)
    metadata = header.pop(METADATA, {})
    if not isinstance(metadata, dict) or not all(isinstance(text, str) for text in metadata.values()):
        raise ValueError("safetensors: the metadata is not a table of texts")
    spans = sorted(_span(name, entry) for name, entry in header.items())
    # Every byte belongs to one tensor, as the format demands: nothing can hide between them.
    edges = [(0, 0, ""), *spans, (len(data), len(data), "")]
    for (_, stop, _), (start, _, name) in pairwise(edges):
        if start != stop:
            where = f"before '{name}'" if name else "at the end"
            raise ValueError(
                f"safetensors: data from {stop} to {start} {where} overlaps, is missing or is nobody's"
            )
    tensors = {name: _tensor(header[name], data[start:stop]) for start, stop, name in spans}
    digest = hashlib.sha256(content).hexdigest()[:DIGEST_LENGTH]
    return Weights(tensors=tensors, metadata=metadata, digest=digest)


def _split(content: bytes) -> tuple[dict[str, Any], bytes]:
    """Return header and data."""
    length = int.from_bytes(content[:LENGTH_BYTES], "little")
    # Looked at before anything is allocated: the length is the file's own word.
    if len(content) < LENGTH_BYTES or not 2 <= length <= min(MAX_HEADER_BYTES, len(content) - LENGTH_BYTES):
        raise ValueError(f"safetensors: a header of {length} bytes in a file of {len(content)}")
    try:
        header = json.loads(content[LENGTH_BYTES : LENGTH_BYTES + length])
    except ValueError as error:
        raise ValueError(f"safetensors: the header is not JSON: {error}") from error
    if not isinstance(header, dict):
        raise ValueError("safetensors: the header is not a JSON object")
    return header, content[LENGTH_BYTES + length :]


def _span(name: str, entry: Any) -> tuple[int, int, str]:
    """Return where a tensor's bytes are, after checks that need only its entry."""
    try:
        size = DTYPES[entry["dtype"]].itemsize
        shape, (start, stop) = entry["shape"], entry["data_offsets"]
        whole = all(type(n) is int and n >= 0 for n in (*shape, start, stop))
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"safetensors: '{name}' has the entry {entry!r}; types: {', '.join(DTYPES)}"
        ) from error
    if not whole or stop - start != prod(shape) * size:
        raise ValueError(f"safetensors: '{name}' has shape {shape} and data from {start} to {stop}")
    return start, stop, name


def _tensor(entry: Mapping[str, Any], data: bytes) -> Tensor:
    values = np.frombuffer(data, dtype=DTYPES[entry["dtype"]])
    return torch.from_numpy(values.astype(values.dtype.newbyteorder("="))).view(entry["shape"])


def write(path: Path, network: Network, provenance: Mapping[str, Any]) -> None:
    """Keep a network: its weights, its shape, and where it comes from."""
    described = {**provenance, **asdict(network.shape)}
    path.write_bytes(pack(network.state_dict(), {key: str(value) for key, value in described.items()}))


def read(path: Path, dtype: torch.dtype) -> tuple[Network, Weights]:
    """Return a kept network at a precision, and the file it comes from.

    Raises:
        ValueError: The file is malformed, or its tensors do not fit the shape that it states.
    """
    weights = unpack(path.read_bytes())
    try:
        shape = Shape(**{name: int(weights.metadata[name]) for name in Shape.__slots__})
        network = Network(shape)
        network.load_state_dict(dict(weights.tensors))
    except (KeyError, RuntimeError, ValueError) as error:
        raise ValueError(f"{path.name}: no network of the shape that its metadata states: {error}") from error
    return network.to(dtype).requires_grad_(False).eval(), weights
