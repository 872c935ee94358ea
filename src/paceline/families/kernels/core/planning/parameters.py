"""Parameters that several operations share, and the rules for them, free of torch."""

from __future__ import annotations

from paceline.base.families.family import Parameter, ParameterKind, Params, Scalar
from paceline.families.kernels.core.planning.arithmetic import ITEM_BYTES, integer, item_bytes


def number(name: str, doc: str, default: Scalar, kind: ParameterKind = "count") -> Parameter:
    """Return a parameter that is a number of at least one."""
    return Parameter(name=name, kind=kind, doc=doc, default=default, minimum=1)


COMMON: tuple[Parameter, ...] = (
    Parameter(name="dtype", kind="choice", doc="Element type.", default="float32", choices=tuple(ITEM_BYTES)),
    Parameter(
        name="threads",
        kind="count",
        doc="Threads of the CPU that a call may use; accelerators ignore it.",
        default=1,
        minimum=1,
    ),
    Parameter(
        name="reference_timer",
        kind="choice",
        doc="Whose timer is used in the same rounds, too: torch-benchmark is PyTorch's own, do-bench Triton's.",
        default="none",
        choices=("none", "torch-benchmark", "do-bench"),
    ),
)
"""Of all operations."""
M = number("m", "Rows of the result.", 512)
N = number("n", "Columns of the result.", 512)
K = number("k", "Length of the reduction.", 512)
TOKENS = number("tokens", "Tokens: rows, or the length of every prompt.", 128)
HIDDEN = number("hidden", "Model width.", 1024)
VOCAB = number("vocab", "Size of the vocabulary.", 32_000)
BATCH = number("batch", "Sequences.", 4)
HEADS = (
    number("heads", "Attention heads.", 8),
    number("kv_heads", "Key and value heads (fewer than heads: grouped-query attention).", 2),
    number("head_dim", "Width of one head.", 64),
)
"""Of attention."""
SIZE_BYTES = number("size_bytes", "Bytes of one array.", 1 << 20, "size")


def whole_groups(params: Params) -> list[str]:
    """Return what is wrong with the heads of attention, in words."""
    if integer(params, "heads") % integer(params, "kv_heads"):
        return [f"heads {params['heads']} is not a multiple of kv_heads {params['kv_heads']}"]
    return []


def whole_elements(params: Params) -> list[str]:
    """Return what is wrong with the bytes of an array, in words."""
    if integer(params, "size_bytes") % item_bytes(params):
        return [f"size_bytes {params['size_bytes']} is not a whole number of {params['dtype']}"]
    return []
