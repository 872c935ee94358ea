"""Triton kernels of split decode attention: partial results of spans of keys, and their merge.

One program computes what a schedule gives one worker, so that ``unsplit``, ``flash-decoding`` and ``lean-attention``
differ in their schedules only.

Decoding reads every key and value once and does little with them, so these kernels are about memory: whole tiles are
loaded without masks through a software pipeline, so that the next tiles are on their way while one is worked on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import e, log2

import torch
import triton
import triton.language as tl
from torch import Tensor

from paceline.families.kernels.api.schedules import Schedule

LEAST_ROWS = 16
"""Rows of the smallest matrix product, and its shortest reduction."""
MOST_PARTS = 64
"""Parts that a merging program holds at a time."""
LOG2_E = log2(e)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """How a program of the first kernel is laid out on a multiprocessor."""

    warps: int = 4
    stages: int = 3
    """Tiles of keys and of values that are in flight or in use."""


STAGE_BYTES = 160 << 10
"""Shared memory of a multiprocessor that tiles may take; the rest is for what the compiler moves between warps."""


def fitting_shape(tile: int, width: int, item_bytes: int) -> Shape:
    """Return the default layout, with fewer tiles in flight where shared memory does not hold as many."""
    # Keys and values; the last stage is in registers.
    fitting = 1 + STAGE_BYTES // (2 * tile * max(triton.next_power_of_2(width), LEAST_ROWS) * item_bytes)
    return Shape(stages=min(Shape().stages, fitting))


@triton.jit
def _load(place, dims, count, D: tl.constexpr, WIDTH: tl.constexpr, TILE: tl.constexpr, WHOLE: tl.constexpr):
    # Without a mask, loads become asynchronous copies of 16 bytes a thread.
    if WHOLE and D == WIDTH:
        return tl.load(place)
    keys = tl.arange(0, TILE)
    inside = (keys[:, None] < count) & (dims[None, :] < D)
    return tl.load(place, mask=inside, other=0.0)


@triton.jit
def _attend(
    q_RD, k_TD, v_TD, m_R, l_RT, o_RD, scale, count, TILE: tl.constexpr, WHOLE: tl.constexpr
):  # fmt: skip
    score_RT = tl.dot(q_RD, tl.trans(k_TD), input_precision="ieee") * scale
    if not WHOLE:
        # A masked key is loaded as zeros and scores 0, which would count in the sum of exponentials.
        score_RT = tl.where(tl.arange(0, TILE)[None, :] < count, score_RT, float("-inf"))
    # Online softmax (Milakov and Gimelshein, section 3): earlier sums are rescaled to the new maximum.
    higher_R = tl.maximum(m_R, tl.max(score_RT, axis=1))
    # Powers of two, which is what the hardware has; the scale holds log₂ e.
    p_RT = tl.exp2(score_RT - higher_R[:, None])
    shrink_R = tl.exp2(m_R - higher_R)
    # Sums stay apart by place within the tile: adding them up takes a barrier, which is paid once at the end.
    l_RT = l_RT * shrink_R[:, None] + p_RT
    # Both factors of a tensor-core product have one dtype; the sum stays in float32.
    o_RD = tl.dot(p_RT.to(v_TD.dtype), v_TD, o_RD * shrink_R[:, None], input_precision="ieee")
    return higher_R, l_RT, o_RD


@triton.jit
def _parts(
    q, k, v, out, m_out, l_out, o_out, worker_begin, span_job, span_first, span_last, span_alone, scale,
    G: tl.constexpr, R: tl.constexpr, ROWS: tl.constexpr, D: tl.constexpr, WIDTH: tl.constexpr,
    TILE: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    worker = tl.program_id(0)
    rows, dims = tl.arange(0, ROWS), tl.arange(0, WIDTH)
    real = (rows[:, None] < R) & (dims[None, :] < D)
    # Within a tile 32 bits are enough; where the tile begins needs 64, since S · G · D may exceed 2³¹.
    place_TD = tl.arange(0, TILE)[:, None] * (G * D) + dims[None, :]
    for span in range(tl.load(worker_begin + worker), tl.load(worker_begin + worker + 1)):
        job = tl.load(span_job + span)
        first = tl.load(span_first + span)
        count = tl.load(span_last + span) - first
        # Query heads that share a key head are consecutive, and a job is sequence · G + key head.
        head = job * R + rows
        # Padded rows load zeros; they cost time but reach no output.
        q_RD = tl.load(q + head[:, None] * D + dims[None, :], mask=real, other=0.0)
        begin = (first.to(tl.int64) * G + job % G) * D
        k_here, v_here = k + begin, v + begin
        m_R = tl.full((ROWS,), float("-inf"), tl.float32)
        l_RT = tl.zeros((ROWS, TILE), tl.float32)
        o_RD = tl.zeros((ROWS, WIDTH), tl.float32)
        for _ in tl.range(0, count // TILE, num_stages=STAGES):
            k_TD = _load(k_here + place_TD, dims, TILE, D, WIDTH, TILE, True)
            v_TD = _load(v_here + place_TD, dims, TILE, D, WIDTH, TILE, True)
            m_R, l_RT, o_RD = _attend(q_RD, k_TD, v_TD, m_R, l_RT, o_RD, scale, TILE, TILE, True)
            k_here += TILE * G * D
            v_here += TILE * G * D
        left = count % TILE
        if left > 0:
            k_TD = _load(k_here + place_TD, dims, left, D, WIDTH, TILE, False)
            v_TD = _load(v_here + place_TD, dims, left, D, WIDTH, TILE, False)
            m_R, l_RT, o_RD = _attend(q_RD, k_TD, v_TD, m_R, l_RT, o_RD, scale, left, TILE, False)
        l_R = tl.sum(l_RT, axis=1)
        if tl.load(span_alone + span) != 0:
            # Nobody else works on this job.
            result_RD = (o_RD / l_R[:, None]).to(out.dtype.element_ty)
            tl.store(out + head[:, None] * D + dims[None, :], result_RD, mask=real)
        else:
            # The triple of each span, unnormalised: only the merge knows the sum over all of a job's spans.
            tl.store(m_out + span * R + rows, m_R, mask=rows < R)
            tl.store(l_out + span * R + rows, l_R, mask=rows < R)
            tl.store(o_out + (span * R + rows[:, None]) * D + dims[None, :], o_RD, mask=real)


@triton.jit
def _merge(
    m_in, l_in, o_in, shared, begins, job_spans, out,
    R: tl.constexpr, D: tl.constexpr, WIDTH: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    index, row = tl.program_id(0), tl.program_id(1)
    dims = tl.arange(0, WIDTH)
    end = tl.load(begins + index + 1)
    m, total = float("-inf"), 0.0
    o_D = tl.zeros((WIDTH,), tl.float32)
    # All parts at a time, as far as registers reach: their loads wait for memory together, not one after another.
    for start in range(tl.load(begins + index), end, PARTS):
        place = start + tl.arange(0, PARTS)
        inside = place < end
        part = tl.load(job_spans + place, mask=inside, other=0) * R + row
        part_m = tl.load(m_in + part, mask=inside, other=float("-inf"))
        part_l = tl.load(l_in + part, mask=inside, other=0.0)
        valid = inside[:, None] & (dims[None, :] < D)
        part_o = tl.load(o_in + part[:, None] * D + dims[None, :], mask=valid, other=0.0)
        higher = tl.maximum(m, tl.max(part_m, axis=0))
        # The first time m is −∞, and the empty sums weigh nothing.
        old, new = tl.exp2(m - higher), tl.exp2(part_m - higher)
        total = total * old + tl.sum(part_l * new, axis=0)
        o_D = o_D * old + tl.sum(part_o * new[:, None], axis=0)
        m = higher
    head = tl.load(shared + index) * R + row
    tl.store(out + head * D + dims, (o_D / total).to(out.dtype.element_ty), mask=dims < D)


class SplitDecode:
    """Decode attention on a schedule of tiles over jobs (sequence · G + key head); lengths are known on the host."""

    def __init__(
        self,
        schedule: Schedule,
        lengths: Sequence[int],
        *,
        tile: int,
        heads: int,
        groups: int,
        width: int,
        dtype: torch.dtype,
        device: torch.device,
        shape: Shape | None = None,
    ) -> None:
        starts = [0]
        for length in lengths:
            starts.append(starts[-1] + length)
        spans = [span for worker in schedule for span in worker]
        begins = [0]
        for worker in schedule:
            begins.append(begins[-1] + len(worker))
        # Positions in the cache are worked out on the host, so that kernels need neither offsets nor division.
        firsts = [starts[s.job // groups] + s.begin * tile for s in spans]
        lasts = [min(starts[s.job // groups] + s.end * tile, starts[s.job // groups + 1]) for s in spans]
        by_job: list[list[int]] = [[] for _ in range(len(lengths) * groups)]
        for index, span in enumerate(spans):
            by_job[span.job].append(index)
        # Most jobs of a long schedule have one span, which is written where it belongs: only the others are merged.
        shared = [job for job, found in enumerate(by_job) if len(found) > 1]
        job_begins = [0]
        for job in shared:
            job_begins.append(job_begins[-1] + len(by_job[job]))

        def table(values: Sequence[int]) -> Tensor:
            return torch.tensor(values, dtype=torch.int32, device=device)

        alone = [int(len(by_job[s.job]) == 1) for s in spans]
        self.tables = [table(t) for t in (begins, [s.job for s in spans], firsts, lasts, alone)]
        self.jobs = [table(shared), table(job_begins), table([i for job in shared for i in by_job[job]])]
        self.num_workers, self.num_shared, self.tile = len(schedule), len(shared), tile
        self.groups, self.share, self.width = groups, heads // groups, width
        self.shape = shape or fitting_shape(tile, width, dtype.itemsize)
        # ``tl.dot`` has a least size, and ``arange`` needs a power of two.
        self.rows = max(triton.next_power_of_2(self.share), LEAST_ROWS)
        self.padded = max(triton.next_power_of_2(width), LEAST_ROWS)
        most = max((len(by_job[job]) for job in shared), default=1)
        self.parts = min(triton.next_power_of_2(most), MOST_PARTS)
        num_parts = len(spans) if shared else 1
        self.m, self.l = (torch.empty(num_parts, self.share, device=device) for _ in range(2))
        self.o = torch.empty(num_parts, self.share, width, device=device)

    def run(self, q_BHD: Tensor, k_SGD: Tensor, v_SGD: Tensor, out_BHD: Tensor) -> None:
        """Attend."""
        sizes = {"R": self.share, "D": self.width, "WIDTH": self.padded}
        _parts[(self.num_workers,)](
            q_BHD, k_SGD, v_SGD, out_BHD, self.m, self.l, self.o, *self.tables, self.width**-0.5 * LOG2_E,
            G=self.groups, ROWS=self.rows, TILE=self.tile, STAGES=self.shape.stages, **sizes,
            num_warps=self.shape.warps,
        )  # fmt: skip
        if self.num_shared:
            _merge[(self.num_shared, self.share)](
                self.m, self.l, self.o, *self.jobs, out_BHD, PARTS=self.parts, **sizes
            )
