"""Parameters of the kernels family and the rules for its points, free of torch."""

from __future__ import annotations

from paceline.base.family import Family, Parameter, ParameterKind, Params, Scalar
from paceline.families.kernels.metric_specs import DERIVED, METRICS
from paceline.families.kernels.workloads import (
    EXPERT_SKEWS,
    ITEM_BYTES,
    SPREADS,
    WORKLOADS,
    integer,
    item_bytes,
)

MAX_BITS = 8
FLOAT8_MULTIPLE = 16
"""Tensor cores read float8 in pieces of this many elements (cuBLASLt refuses others)."""


def _only_for(name: str) -> tuple[str, ...]:
    return tuple(w.name for w in WORKLOADS.values() if name in w.parameters)


def _number(name: str, doc: str, default: Scalar, kind: ParameterKind = "count") -> Parameter:
    return Parameter(name=name, kind=kind, doc=doc, default=default, minimum=1, only_for=_only_for(name))


PARAMETERS: tuple[Parameter, ...] = (
    Parameter(name="op", kind="choice", doc="The operation.", required=True, choices=tuple(WORKLOADS)),
    Parameter(name="dtype", kind="choice", doc="Element type.", default="float32", choices=tuple(ITEM_BYTES)),
    Parameter(
        name="threads",
        kind="count",
        doc="Threads of the CPU that a call may use; accelerators ignore it.",
        default=1,
        minimum=1,
    ),
    Parameter(
        name="beside",
        kind="choice",
        doc="What else is timed in the same rounds: torch-benchmark is PyTorch's own timer, do-bench Triton's.",
        default="nothing",
        choices=("nothing", "torch-benchmark", "do-bench"),
    ),
    _number("m", "Rows of the result.", 512),
    _number("n", "Columns of the result.", 512),
    _number("k", "Length of the reduction.", 512),
    _number("tokens", "Tokens: rows, or the length of every prompt.", 128),
    _number("hidden", "Model width.", 1024),
    _number("vocab", "Size of the vocabulary.", 32_000),
    _number("experts", "Number of experts.", 8),
    Parameter(
        name="skew",
        kind="choice",
        doc="How tokens are spread over experts: even, or falling as 1/rank.",
        default="skewed",
        choices=EXPERT_SKEWS,
        only_for=_only_for("skew"),
    ),
    _number("batch", "Sequences.", 4),
    _number("context", "Tokens in the longest sequence's cache.", 1024),
    Parameter(
        name="spread",
        kind="choice",
        doc="Lengths of the other sequences: uniform, linear (from context/batch up), one-long (a sixteenth).",
        default="linear",
        choices=SPREADS,
        only_for=_only_for("spread"),
    ),
    _number("heads", "Attention heads.", 8),
    _number("kv_heads", "Key and value heads (fewer than heads: grouped-query attention).", 2),
    _number("head_dim", "Width of one head.", 64),
    _number("bits", "Bits of one weight, 1 to 8.", 4),
    _number("group", "Weights of one row of the reduction that share a scale.", 64),
    _number("size_bytes", "Bytes of one array.", 1 << 20, "size"),
    _number("largest", "Largest side of the shapes whose tile is chosen; the least is an eighth of it.", 512),
    _number("num_shapes", "Shapes that are measured; every fourth is held out.", 24),
    _number("rows", "Rows that are copied.", 1024),
    _number("columns", "Elements copied of each row.", 16),
    _number("row_stride", "Elements between the starts of neighbouring rows.", 64),
)


def check(params: Params) -> list[str]:
    """Return what is wrong with a fully resolved point, in words."""
    problems: list[str] = []
    if "kv_heads" in params and integer(params, "heads") % integer(params, "kv_heads"):
        problems.append(f"heads {params['heads']} is not a multiple of kv_heads {params['kv_heads']}")
    if "bits" in params:
        if integer(params, "bits") > MAX_BITS:
            problems.append(f"weights have 1 to {MAX_BITS} bits, not {params['bits']}")
        if integer(params, "k") % integer(params, "group"):
            problems.append(f"k {params['k']} is not a multiple of group {params['group']}")
    if params["op"] == "scaled_gemm":
        if params["dtype"] == "float64":
            problems.append("scaled_gemm gives float32, bfloat16 or float16, not float64")
        if any(integer(params, side) % FLOAT8_MULTIPLE for side in "nk"):
            problems.append(f"scaled_gemm needs n and k that are multiples of {FLOAT8_MULTIPLE}")
    if "size_bytes" in params and integer(params, "size_bytes") % item_bytes(params):
        problems.append(f"size_bytes {params['size_bytes']} is not a whole number of {params['dtype']}")
    if "row_stride" in params and integer(params, "row_stride") < integer(params, "columns"):
        problems.append("row_stride is smaller than columns: rows would overlap")
    return problems


def _estimate_s(params: Params) -> float:
    workload = WORKLOADS[str(params["op"])]
    if workload.scenario:
        return integer(params, "num_shapes") * integer(params, "largest") ** 2 * 2e-6
    return 2e-5 + workload.flops(params) / 2e10 + workload.traffic(params) / 4e9


FAMILY = Family(
    name="kernels",
    summary="Operations on one device: latency, error, memory, and how close each comes to what the device can do.",
    parameters=PARAMETERS,
    metrics=METRICS,
    default_metrics=("latency",),
    operation_key="op",
    check=check,
    estimate_s=_estimate_s,
    derived=DERIVED,
    isolated=True,
)
