"""What this device can do, measured in the launch itself, and how close a kernel comes.

The calibrated ceilings are the best copy, triad and matrix product of this process with the block's number of
threads. They name the binding term and give the time that no honest kernel can undercut; a sample below it has them
measured a second time before it is called impossible.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import torch

from paceline.families.datasheets import Datasheet, datasheet_of
from paceline.families.kernels.api import float8
from paceline.families.kernels.api.problem import TORCH_DTYPES
from paceline.families.kernels.core.caches import caches_of
from paceline.families.kernels.core.planning.arithmetic import Arithmetic
from paceline.worker.machine.device import Device
from paceline.worker.ranks.session import Block, Session

_perf_ns = time.perf_counter_ns

CALIBRATION_S = 0.15
SECOND_LOOK_S = 1.0
"""How long a product or a copy is measured again when a sample seems too fast to be true."""
CPU_GEMM_SIZE = 512
PROBE_GEMM_SIZE, HOPELESS, PROBES = 64, 100.0, 3
"""A processor without float8 computes it element by element: a large product takes seconds where float32's takes
milliseconds. One whose small product is so many times slower than the best rate, at the best of some, is left out."""
ACCELERATOR_GEMM_SIZE = 8192
"""The largest that is tried, as on all fast ones."""
TELLING_S = 5e-3
"""A product or a copy on an accelerator that takes this long is large enough: twice the size shows no other rate."""
COPY_SHARE_OF_MEMORY = 8
"""A copy's source and target take at most one in so many bytes of an accelerator's memory each."""
COPY_SHARE_OF_CACHE = 4
MAX_COPY_BYTES = 256 << 20
"""On CPUs, whose memory is shared with all other processes."""
ACCELERATOR_COPY_BYTES = 1 << 30
"""On accelerators, or more where their caches ask for it; less on those that are slow or small."""
SAFETY = 2.0
"""A sample may beat the calibrated ceiling by this: calibration is short, and other processes disturb it."""
Call = Callable[[], Any]
Floor = Callable[[float], float]
"""The seconds that no honest call can undercut, for a sample in seconds: see :func:`floor_of`."""


def of_block(session: Session, block: Block, arithmetic: Arithmetic) -> dict[str, Any]:
    """Return the ceilings for a block's dtype and threads, measured once in a launch."""
    found: dict[str, Any] = dict(_rates(session, block, arithmetic))
    facts = session.device.describe()
    found["datasheet"] = datasheet_of(
        facts.get("name"),
        kind=session.device.torch_type,
        threads=int(block.params["threads"]),
        multiprocessors=facts.get("multiprocessors"),
    )
    return found


def floor_of(session: Session, block: Block, arithmetic: Arithmetic) -> Floor:
    """Return what gives, for a sample in seconds, the seconds that no honest call of this block can undercut.

    A sample below them may as well mean that something disturbed the device while its ceilings were measured. They are
    measured again then, once in a launch and for longer, and the best that was ever seen counts.
    """
    cold = str(block.protocol["cache"]).startswith("cold")

    def floor_s(rates: Mapping[str, float]) -> float:
        compute = arithmetic.flops(block.params) / (SAFETY * rates["flops_per_s"])
        # Warm operands come from caches, whose rate nobody has calibrated: then only operations bound a call.
        memory = arithmetic.traffic(block.params) / (SAFETY * rates["bytes_per_s"]) if cold else 0.0
        return max(compute, memory)

    def floor(sample_s: float) -> float:
        found = floor_s(_rates(session, block, arithmetic))
        return found if sample_s >= found else floor_s(_rates(session, block, arithmetic, doubted=True))

    return floor


def _rates(
    session: Session, block: Block, arithmetic: Arithmetic, *, doubted: bool = False
) -> Mapping[str, float]:
    """Return operations and copied bytes a second, measured once in a launch, and once more when they are doubted."""
    dtype, threads = str(block.params["dtype"]), int(block.params["threads"])
    operands = arithmetic.operands
    looks = session.facts["ceilings"].setdefault((dtype, operands, threads), [])
    if len(looks) < 1 + doubted:
        # Put back afterwards: how many threads the oracle has is no matter of the block.
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            looks.append(
                _measure(
                    session,
                    TORCH_DTYPES[dtype],
                    narrow=operands is not None,
                    seconds=SECOND_LOOK_S if doubted else CALIBRATION_S,
                )
            )
        finally:
            torch.set_num_threads(before)
    # The best that was ever seen: a disturbed look must not call an honest kernel impossible.
    return {name: max(look[name] for look in looks) for name in looks[0]}


def _measure(session: Session, dtype: torch.dtype, *, narrow: bool, seconds: float) -> dict[str, float]:
    device = session.device.torch_type
    # Float32 as well: an honest kernel may compute narrow factors in wide arithmetic, which is faster on many CPUs.
    dtypes = {dtype, torch.promote_types(dtype, torch.float32)}
    rates = [_product_rate(session, d, seconds) for d in dtypes]
    # The device's own type: rewriting factors into it is a technique's cost and no limit of the device.
    own = float8.native(torch.device(device)) if narrow else None
    if own is not None and not (device == "cpu" and _is_hopeless(session, own, max(rates))):
        rates.append(_product_rate(session, own, seconds))
    least, most = _copied_bytes(session)
    count, copy = grown(least, most, lambda n: _copying(n, device), session.device)
    copy_s = _best(copy, session, seconds)
    # A copied byte is read and written: two bytes of traffic, as in ``Arithmetic.traffic``.
    return {"flops_per_s": max(rates), "bytes_per_s": 2.0 * count / copy_s}


def _copied_bytes(session: Session) -> tuple[int, int]:
    """Return the least and the most bytes to copy: several times the last cache, so that memory shows and no cache."""
    wanted = COPY_SHARE_OF_CACHE * caches_of(session.device).last_level_bytes
    if session.device.torch_type == "cpu":
        wanted = min(wanted, MAX_COPY_BYTES)
        return wanted, wanted
    memory = session.device.describe().get("memory_bytes")
    room = memory // COPY_SHARE_OF_MEMORY if memory else ACCELERATOR_COPY_BYTES
    least = int(min(wanted, room))
    return least, max(least, min(ACCELERATOR_COPY_BYTES, room))


def _copying(count: int, device: str) -> Call:
    source, target = (torch.ones(count, dtype=torch.uint8, device=device) for _ in range(2))
    return lambda: target.copy_(source)


def grown(least: int, most: int, make: Callable[[int], Call], device: Device) -> tuple[int, Call]:
    """Return the size of a call that is long enough to show a device's rate, and the call.

    A product that fills a large accelerator takes half a minute on a small one.

    Args:
        least: The size that is tried first.
        most: The largest that is tried.
        make: Returns the call of a size.
        device: That computes.
    """
    size, call = least, make(least)
    while size < most and _second_call_s(call, device) < TELLING_S:
        size = min(2 * size, most)
        call = make(size)
    return size, call


def _second_call_s(call: Call, device: Device) -> float:
    call()
    device.synchronize()
    start = _perf_ns()
    call()
    device.synchronize()
    return (_perf_ns() - start) * 1e-9


def _product_rate(session: Session, dtype: torch.dtype, seconds: float) -> float:
    """Return the rate of a square matrix product; narrow dtypes on CPUs may be slower than the wide ones."""
    device = session.device.torch_type
    most = CPU_GEMM_SIZE if device == "cpu" else ACCELERATOR_GEMM_SIZE
    size, product = grown(CPU_GEMM_SIZE, most, lambda n: _product(n, dtype, device), session.device)
    return 2.0 * size**3 / _best(product, session, seconds)


def _is_hopeless(session: Session, dtype: torch.dtype, best: float) -> bool:
    """Tell whether a small product is so slow that no size of it can reach another dtype's rate."""
    call = _product(PROBE_GEMM_SIZE, dtype, session.device.torch_type)
    taken_s = min(_second_call_s(call, session.device) for _ in range(PROBES))
    return 2.0 * PROBE_GEMM_SIZE**3 / taken_s < best / HOPELESS


def _product(size: int, dtype: torch.dtype, device: str) -> Call:
    a, b = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    if dtype in (float8.DTYPE, float8.FNUZ):
        scale, wide = torch.ones((), device=device), torch.empty_like(a, dtype=torch.bfloat16)
        return lambda: float8.product(a, b, scale, scale, wide)
    out = torch.empty_like(a)
    return lambda: torch.mm(a, b, out=out)


def _best(call: Call, session: Session, seconds: float) -> float:
    """Return the seconds of the fastest call after the first, of those that fit into a time."""
    call()
    session.device.synchronize()
    best, begin = float("inf"), _perf_ns()
    while _perf_ns() - begin < seconds * 1e9:
        start = _perf_ns()
        call()
        session.device.synchronize()
        # The fastest: a ceiling bounds what the device can do, not what it does on average.
        best = min(best, (_perf_ns() - start) * 1e-9)
    return best


def describe(
    arithmetic: Arithmetic, params: Mapping[str, Any], ceiling: Mapping[str, Any], latency_s: float
) -> dict[str, Any]:
    """Return the ceilings of a measurement: calibrated rates, binding term, fraction."""
    compute = arithmetic.flops(params) / ceiling["flops_per_s"]
    memory = arithmetic.traffic(params) / ceiling["bytes_per_s"]
    # A roofline: both go on at once, so that the longer one is the bound.
    model = max(compute, memory)
    return {
        "calibrated": {
            "flops_per_s": ceiling["flops_per_s"],
            "bytes_per_s": ceiling["bytes_per_s"],
        },
        "model_s": model,
        "model": "max(operations / calibrated matrix product, compulsory bytes / calibrated copy)",
        "binding": "compute" if compute >= memory else "memory",
        "fraction_of_calibrated": model / latency_s if latency_s > 0 else None,
        **_against_datasheet(
            ceiling.get("datasheet"),
            arithmetic.operands or str(params["dtype"]),
            arithmetic,
            params,
            latency_s,
        ),
    }


def _against_datasheet(
    sheet: Datasheet | None, dtype: str, arithmetic: Arithmetic, params: Mapping[str, Any], latency_s: float
) -> dict[str, Any]:
    """Return the datasheet's rates and the fraction of them that a kernel reached, or the reason why there is none."""
    if sheet is None:
        return {"datasheet": None, "datasheet_reason": "the device is not in the table of datasheets"}
    # A sheet lists the float8 type that its device has: CDNA 3 has float8_e4m3fnuz.
    rate = sheet.flops_per_s.get(dtype, sheet.flops_per_s.get(f"{dtype}uz"))
    facts = {
        "name": sheet.name,
        "flops_per_s": rate,
        "bytes_per_s": sheet.bytes_per_s,
        "source": sheet.source,
    }
    if rate is None or sheet.bytes_per_s is None:
        missing = f"operations in {dtype}" if rate is None else "memory"
        return {"datasheet": facts, "datasheet_reason": f"no published rate of {missing}"}
    model = max(arithmetic.flops(params) / rate, arithmetic.traffic(params) / sheet.bytes_per_s)
    return {"datasheet": facts, "fraction_of_datasheet": model / latency_s if latency_s > 0 else None}
