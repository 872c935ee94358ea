"""Triton kernels of split decode attention: partial results of spans of keys, and their merge.

One program computes what a schedule gives one worker, so that ``unsplit``, ``flash-decoding`` and ``lean-attention``
differ in their schedules only.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from paceline.families.kernels.api.schedules import Schedule

LEAST_ROWS = 16
"""Rows of the smallest matrix product."""


@triton.jit
def _parts(
    q, k, v, m_out, l_out, o_out, worker_begin, span_job, span_first, span_last, scale,
    G: tl.constexpr, R: tl.constexpr, ROWS: tl.constexpr, D: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    worker = tl.program_id(0)
    rows, dims = tl.arange(0, ROWS), tl.arange(0, D)
    for span in range(tl.load(worker_begin + worker), tl.load(worker_begin + worker + 1)):
        job = tl.load(span_job + span)
        end = tl.load(span_last + span)
        group = job % G
        # Query heads that share a key head are consecutive, and a job is sequence · G + key head.
        head = job * R + rows
        # Padded rows load zeros; they cost time but reach no output.
        q_RD = tl.load(q + head[:, None] * D + dims[None, :], mask=rows[:, None] < R, other=0.0)
        m_R = tl.full((ROWS,), float("-inf"), tl.float32)
        l_R = tl.zeros((ROWS,), tl.float32)
        o_RD = tl.zeros((ROWS, D), tl.float32)
        for start in range(tl.load(span_first + span), end, TILE):
            # 64 bits: S · G · D may exceed 2³¹.
            keys = (start + tl.arange(0, TILE)).to(tl.int64)
            inside = keys < end
            place = (keys * G + group) * D
            k_DT = tl.load(k + place[None, :] + dims[:, None], mask=inside[None, :], other=0.0)
            v_TD = tl.load(v + place[:, None] + dims[None, :], mask=inside[:, None], other=0.0)
            score_RT = tl.dot(q_RD, k_DT, input_precision="ieee") * scale
            # A masked key is loaded as zeros and scores 0, which would count in the sum of exponentials.
            score_RT = tl.where(inside[None, :], score_RT, float("-inf"))
            # Online softmax (Milakov and Gimelshein, section 3): earlier sums are rescaled to the new maximum.
            higher_R = tl.maximum(m_R, tl.max(score_RT, axis=1))
            p_RT = tl.exp(score_RT - higher_R[:, None])
            shrink_R = tl.exp(m_R - higher_R)
            l_R = l_R * shrink_R + tl.sum(p_RT, axis=1)
            # Both factors of a tensor-core product have one dtype; the sum stays in float32.
            o_RD = o_RD * shrink_R[:, None] + tl.dot(p_RT.to(v_TD.dtype), v_TD, input_precision="ieee")
            m_R = higher_R
        # The triple of each span, unnormalised: only the merge knows the sum over all of a job's spans.
        tl.store(m_out + span * ROWS + rows, m_R)
        tl.store(l_out + span * ROWS + rows, l_R)
        tl.store(o_out + (span * ROWS + rows[:, None]) * D + dims[None, :], o_RD)


@triton.jit
def _merge(
    m_in, l_in, o_in, job_begin, job_spans, out,
    R: tl.constexpr, ROWS: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    job = tl.program_id(0)
    rows, dims = tl.arange(0, ROWS), tl.arange(0, D)
    m_R = tl.full((ROWS,), float("-inf"), tl.float32)
    l_R = tl.zeros((ROWS,), tl.float32)
    o_RD = tl.zeros((ROWS, D), tl.float32)
    for index in range(tl.load(job_begin + job), tl.load(job_begin + job + 1)):
        span = tl.load(job_spans + index)
        part_m = tl.load(m_in + span * ROWS + rows)
        part_o = tl.load(o_in + (span * ROWS + rows[:, None]) * D + dims[None, :])
        higher_R = tl.maximum(m_R, part_m)
        # The first time m is −∞, and exp makes the empty sums weigh nothing.
        old, new = tl.exp(m_R - higher_R), tl.exp(part_m - higher_R)
        l_R = l_R * old + tl.load(l_in + span * ROWS + rows) * new
        o_RD = o_RD * old[:, None] + part_o * new[:, None]
        m_R = higher_R
    head = job * R + rows
    tl.store(
        out + head[:, None] * D + dims[None, :],
        (o_RD / l_R[:, None]).to(out.dtype.element_ty),
        mask=rows[:, None] < R,
    )


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
        device: torch.device,
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
        # Spans of a job may belong to several workers: the merge finds them through these lists.
        by_job: list[list[int]] = [[] for _ in range(len(lengths) * groups)]
        for index, span in enumerate(spans):
            by_job[span.job].append(index)
        job_begins = [0]
        for found in by_job:
            job_begins.append(job_begins[-1] + len(found))

        def table(values: Sequence[int]) -> Tensor:
            return torch.tensor(values, dtype=torch.int32, device=device)

        self.tables = [table(t) for t in (begins, [s.job for s in spans], firsts, lasts)]
        self.jobs = [table(job_begins), table([i for found in by_job for i in found])]
        self.num_workers, self.num_jobs, self.tile = len(schedule), len(by_job), tile
        self.groups, self.share, self.width = groups, heads // groups, width
        # ``tl.dot`` has a least size, and ``arange`` needs a power of two.
        self.rows = max(triton.next_power_of_2(self.share), LEAST_ROWS)
        self.m, self.l = (torch.empty(len(spans), self.rows, device=device) for _ in range(2))
        self.o = torch.empty(len(spans), self.rows, width, device=device)

    def run(self, q_BHD: Tensor, k_SGD: Tensor, v_SGD: Tensor, out_BHD: Tensor) -> None:
        """Attend."""
        shape = {"R": self.share, "ROWS": self.rows, "D": self.width}
        _parts[(self.num_workers,)](
            q_BHD, k_SGD, v_SGD, self.m, self.l, self.o, *self.tables, self.width**-0.5,
            G=self.groups, TILE=self.tile, **shape,
        )  # fmt: skip
        _merge[(self.num_jobs,)](self.m, self.l, self.o, *self.jobs, out_BHD, **shape)
