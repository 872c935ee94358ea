"""Parameters of the collectives family and the rules for its points, free of torch.

Conventions follow nccl-tests (doc/PERFORMANCE.md): n ranks, GB = 10^9 bytes, S = bytes that enter the algorithm
bandwidth S/t; the bus bandwidth is the algorithm bandwidth times a factor that makes it comparable with a link.
"""

from __future__ import annotations

import math

from paceline.base.family import DerivedMetric, Family, FrontierSpec, Parameter, Params, SplitSpec
from paceline.families.collectives.metric_specs import METRICS
from paceline.families.collectives.operation_specs import OPERATIONS

DTYPES = ("float32", "bfloat16", "float16", "float64", "int32", "int64")
ITEM_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "float64": 8, "int32": 4, "int64": 8}
PAYLOADS = ("gaussian", "heavy-tailed", "gradient-like", "sparse", "integers")
"""Distributions of inputs; docs/metrics.md says how each is drawn."""


FAULTS = ("none", "stall", "slow-rank", "slow-link", "missing-call")
PARAMETERS: tuple[Parameter, ...] = (
    Parameter(name="op", kind="choice", doc="The operation.", required=True, choices=tuple(OPERATIONS)),
    Parameter(
        name="size_bytes",
        kind="size",
        doc="S: bytes that enter the algorithm bandwidth (for sharded operations the sum of all shares).",
        minimum=1,
        required=True,
        only_for=tuple(o.name for o in OPERATIONS.values() if o.sized),
    ),
    Parameter(name="dtype", kind="choice", doc="Element type.", default="float32", choices=DTYPES),
    Parameter(name="ranks", kind="count", doc="Number of ranks.", default=2, minimum=1),
    Parameter(
        name="link",
        kind="text",
        doc="A link of the runner; default: the runner's own.",
        default=None,
    ),
    Parameter(
        name="payload",
        kind="choice",
        doc="Distribution of the inputs.",
        default="gaussian",
        choices=PAYLOADS,
    ),
    Parameter(
        name="beside",
        kind="choice",
        doc="What else is timed in the same rounds: bare-loop is torch.distributed without the harness.",
        default="nothing",
        choices=("nothing", "bare-loop"),
        only_for=("all_reduce",),
    ),
    Parameter(
        name="root",
        kind="count",
        doc="The root rank.",
        default=0,
        minimum=0,
        only_for=("broadcast", "reduce"),
    ),
    Parameter(
        name="group_ranks",
        kind="count",
        doc="Ranks per group (a node); 0 means that there are no groups.",
        default=0,
        minimum=0,
        only_for=("all_reduce", "all_gather", "reduce_scatter"),
    ),
    Parameter(
        name="tokens",
        kind="count",
        doc="Tokens: in all for norm_layer, on each rank for attention.",
        default=64,
        minimum=1,
        only_for=("norm_layer", "linear_attention", "sequence_attention"),
    ),
    Parameter(
        name="hidden",
        kind="count",
        doc="Model width.",
        default=256,
        minimum=1,
        only_for=("norm_layer",),
    ),
    Parameter(
        name="layers",
        kind="count",
        doc="Layers in one call.",
        default=2,
        minimum=1,
        only_for=("norm_layer",),
    ),
    Parameter(
        name="heads",
        kind="count",
        doc="Attention heads.",
        default=4,
        minimum=1,
        only_for=("linear_attention", "sequence_attention"),
    ),
    Parameter(
        name="kv_heads",
        kind="count",
        doc="Key and value heads (fewer than heads: grouped-query attention).",
        default=4,
        minimum=1,
        only_for=("sequence_attention",),
    ),
    Parameter(
        name="head_dim",
        kind="count",
        doc="Width of one head.",
        default=32,
        minimum=1,
        only_for=("linear_attention", "sequence_attention"),
    ),
    Parameter(
        name="num_blocks",
        kind="count",
        doc="Strided blocks.",
        default=1024,
        minimum=1,
        only_for=("strided_exchange",),
    ),
    Parameter(
        name="block_bytes",
        kind="size",
        doc="Contiguous bytes of one block.",
        default=64,
        minimum=1,
        only_for=("strided_exchange",),
    ),
    Parameter(
        name="stride_bytes",
        kind="size",
        doc="Bytes between the starts of neighbouring blocks.",
        default=256,
        minimum=1,
        only_for=("strided_exchange",),
    ),
    Parameter(
        name="planes",
        kind="count",
        doc="Number of planes of blocks: 1 is a two-dimensional face, more a three-dimensional one.",
        default=1,
        minimum=1,
        only_for=("strided_exchange",),
    ),
    Parameter(
        name="side",
        kind="count",
        doc="Rows and columns of the square matrices.",
        default=512,
        minimum=1,
        only_for=("matrix_product",),
    ),
    Parameter(
        name="steps",
        kind="count",
        doc="Operations in one scenario.",
        default=12,
        minimum=4,
        only_for=("churn", "fault_localisation"),
    ),
    Parameter(
        name="fault",
        kind="choice",
        doc="What goes wrong.",
        default="stall",
        choices=FAULTS,
        only_for=("fault_localisation",),
    ),
    Parameter(
        name="severity",
        kind="number",
        doc="Strength of the fault: slow ranks and links take this many times as long; stalls last longer.",
        default=10.0,
        minimum=1.0,
        only_for=("fault_localisation",),
    ),
)


def check(params: Params) -> list[str]:
    """Return what makes a resolved point illegal."""
    problems: list[str] = []
    operation = OPERATIONS[str(params["op"])]
    ranks = _int(params, "ranks")
    if ranks < operation.min_ranks:
        problems.append(f"{operation.name} needs at least {operation.min_ranks} ranks, not {ranks}")
    if operation.sized:
        least = ITEM_BYTES[str(params["dtype"])] * (ranks if operation.sharded else 1)
        if _int(params, "size_bytes") < least:
            problems.append(
                f"size_bytes {params['size_bytes']} holds less than one element a rank ({least} B)"
            )
    if operation.name == "mix":
        if str(params["dtype"]).startswith("int"):
            problems.append(f"mix averages replicas: it needs a floating dtype, not {params['dtype']}")
        elif element_count(params) < ranks:
            problems.append(
                f"size_bytes {params['size_bytes']} holds fewer elements than ranks ({ranks}): "
                "the mixing weights could not be told apart"
            )
    if "root" in params and _int(params, "root") >= ranks:
        problems.append(f"root {params['root']} is not one of {ranks} ranks")
    group = _int(params, "group_ranks") if params.get("group_ranks") else 0
    if group and ranks % group:
        problems.append(f"{ranks} ranks cannot be split into groups of {group}")
    if operation.name == "norm_layer" and _int(params, "hidden") % ranks:
        problems.append(f"hidden {params['hidden']} cannot be split between {ranks} ranks")
    if operation.name == "matrix_product":
        width = math.isqrt(ranks)
        if width * width != ranks:
            problems.append(f"{ranks} ranks form no square grid")
        elif _int(params, "side") % width:
            problems.append(f"side {params['side']} cannot be split between {width} rows of ranks")
    if operation.name == "sequence_attention" and _int(params, "heads") % _int(params, "kv_heads"):
        problems.append(f"heads {params['heads']} is not a multiple of kv_heads {params['kv_heads']}")
    if operation.name == "strided_exchange":
        item = ITEM_BYTES[str(params["dtype"])]
        for key in ("block_bytes", "stride_bytes"):
            if _int(params, key) % item:
                problems.append(f"{key} {params[key]} is not a multiple of the element size {item}")
        if _int(params, "stride_bytes") < _int(params, "block_bytes"):
            problems.append("stride_bytes is smaller than block_bytes: blocks would overlap")
    if str(params["dtype"]).startswith("int") and params["payload"] != "integers":
        problems.append(f"payload {params['payload']} needs a floating dtype, not {params['dtype']}")
    return problems


def element_count(params: Params) -> int:
    """Return the elements of S after rounding down to whole, equal shares."""
    operation = OPERATIONS[str(params["op"])]
    count = _int(params, "size_bytes") // ITEM_BYTES[str(params["dtype"])]
    return count // _int(params, "ranks") * _int(params, "ranks") if operation.sharded else count


def algorithm_bandwidth(params: Params, latency_s: float) -> float | None:
    """Return S/t in bytes per second; None where S is not defined."""
    if not OPERATIONS[str(params["op"])].sized or latency_s <= 0:
        return None
    return element_count(params) * ITEM_BYTES[str(params["dtype"])] / latency_s


def bus_bandwidth(params: Params, latency_s: float) -> float | None:
    """Return algbw × factor; None for one rank, where no byte needs to move."""
    factor = OPERATIONS[str(params["op"])].bus_factor
    bandwidth = algorithm_bandwidth(params, latency_s)
    ranks = _int(params, "ranks")
    if factor is None or bandwidth is None or ranks == 1:
        return None
    return bandwidth * factor(ranks)


def _estimate_s(params: Params) -> float:
    operation = OPERATIONS[str(params["op"])]
    if operation.scenario:
        return 8.0
    ranks = _int(params, "ranks")
    size = _int(params, "size_bytes") if operation.sized else 1 << 20
    return 0.0006 * ranks + size * ranks / 2e9


def _int(params: Params, key: str) -> int:
    value = params[key]
    assert isinstance(value, int)
    return value


__all__ = ["FAMILY", "METRICS", "OPERATIONS", "PARAMETERS", "element_count"]

FAMILY = Family(
    name="collectives",
    summary="Operations over ranks: latency, bytes on the wire, and error.",
    parameters=PARAMETERS,
    metrics=METRICS,
    default_metrics=("latency", "wire_bytes"),
    operation_key="op",
    check=check,
    estimate_s=_estimate_s,
    derived=(
        DerivedMetric(
            name="algbw", unit="B/s", source="latency", formula="S / t", compute=algorithm_bandwidth
        ),
        DerivedMetric(
            name="busbw",
            unit="B/s",
            source="latency",
            formula="S / t × factor(n)",
            compute=bus_bandwidth,
        ),
    ),
    frontiers=(
        FrontierSpec(across="wire_bytes", up="relative_l2_error"),
        FrontierSpec(across="latency", up="relative_l2_error"),
    ),
    splits=(
        SplitSpec(
            title="one call",
            parts=("communicate_s", "compress_s", "decompress_s", "pack_s", "unpack_s", "compute_s"),
        ),
    ),
)
