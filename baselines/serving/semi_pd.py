"""Semi-PD: prompts and answers are computed by two workers of one device, over one memory and one copy of the weights.

Hong, Chen, Wang, Li, Mao, Ma, Xiong, Wu, Han, Dai, Liang and Wang, 2025, "semi-PD: Towards Efficient LLM Serving via
Phase-Wise Disaggregated Computation and Unified Storage" (arXiv:2504.19867): its computation controller and its unified
memory manager; its partitioning by objectives is another one here.

Algorithm: a worker for prompts and one for answers step at their own pace on a share x and 1 − x of their device; a
request that has its first token is simply seen by the other worker. While one of them has nothing to do the other has
the whole device. x grows by a step while more prompts wait than ``patience``, and shrinks while none does.
Cost: no keys and values move, one copy of the weights. A prompt takes 1/x of its time beside decodes, a decode 1/(1 −
x).
Limits: two workers of one device disturb each other's caches and bandwidth, which no table of single steps shows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from paceline import technique
from paceline.families.serving.api.deploying import (
    Busy,
    Given,
    InParts,
    Layout,
    Load,
    Memory,
    Worker,
    least_loaded,
)
from paceline.families.serving.api.scheduling import Request


@technique(
    name="semi-pd",
    family="serving",
    implements=("simulate",),
    paper="semi-pd",
    summary="a worker for prompts and one for answers over one memory, on moving shares of one device",
    fidelity={
        "source": {
            "read": "code",
            "paper": "sections 4.3 to 4.5, 5 with algorithm 1 and equations 1 to 4, and 7.1, read for this card",
            "code": "github.com/infinigence/Semi-PD: README.md, python/sglang/semi_pd/utils.py, evaluation/",
        },
        "deviations": (
            (
                "Shares add up to the device; the authors' defaults overlap, 80 % for prompts and 100 % for "
                "answers, and the paper compares 50 and 50 with 100 and 100."
            ),
            (
                "The border moves by how many prompts wait at a change, since objectives are the client's; algorithm 1 "
                "moves it once a window by which objective fails, as far as a fitted model of both times asks."
            ),
            "In the authors' public code shares are environment variables, read when it is started.",
            "Changing shares costs nothing; the paper hides it behind running iterations.",
            (
                "A step at share x takes 1/x of its time, equation 1; the paper's fit of answers' times has a constant "
                "of four tenths beside it (figure 10), so that they lose less."
            ),
        ),
        "constants": {
            "prefill_share": {
                "here": 0.5,
                "authors": "0.8 beside 1.0 for answers, utils.py",
                "official": 0.8,
                "source": "github.com/infinigence/Semi-PD: python/sglang/semi_pd/utils.py",
                "differs": "shares add up to the device; their defaults, 80 % and 100 %, overlap",
            },
            "step": {
                "here": 0.1,
                "authors": "step_size of algorithm 1, without a value; not in the public code",
            },
            "patience": {"here": 2, "authors": "none; window_size and the objectives stand in its place"},
            "most": {"here": 0.9, "authors": "100 % (x, y at most 100)"},
        },
        "checked_by": (
            "tests/unit/test_simulation.py::test_a_deployment_keeps_all_laws",
            "tests/unit/test_simulation.py::test_what_moves_is_the_closed_form_and_only_who_moves_has_two_copies_of_the_weights",
        ),
    },
)
class SemiDisaggregated:
    """Two workers a device, one for prompts and one for answers.

    Args:
        prefill_share: Of a device, at first.
        step: By which it moves.
        patience: Prompts that may wait before it grows.
        most: Bound of either share.
    """

    def __init__(
        self, *, prefill_share: float = 0.5, step: float = 0.1, patience: int = 2, most: float = 0.9
    ) -> None:
        self._first, self._step, self._patience, self._most = prefill_share, step, patience, most
        self._share: dict[int, float] = {}

    def layout(self, given: Given) -> Layout:
        """Give each device one memory and two workers: even ones for prompts, odd ones for answers."""
        devices = range(given.devices)
        self._share = dict.fromkeys(devices, self._first)
        workers: list[Worker] = []
        for device in devices:
            # Both workers name one memory: pages are handed from phase to phase by bookkeeping, and no byte moves.
            workers.append(Worker(memory=device, scheduler=InParts(), phase="prefill"))
            workers.append(Worker(memory=device, scheduler=InParts(), phase="decode"))
        return Layout(
            memories=tuple(Memory(device=d, blocks=given.blocks_per_device) for d in devices),
            workers=tuple(workers),
        )

    def route(self, tenant: str, prompt_tokens: int, loads: Sequence[Load]) -> int:
        """Take the device with the fewest tokens to compute."""
        return least_loaded(loads, range(len(loads)))

    def go_on(self, request: Request, memory: int, loads: Sequence[Load]) -> int:
        """Stay: the other worker sees it from now on."""
        return memory

    def shares(self, device: int, workers: Sequence[Busy]) -> Mapping[int, float]:
        """Divide the device between those who compute."""
        # In the order of the layout: the even one is for prompts.
        prefill, decode = workers
        if not (prefill.computing and decode.computing):
            return {prefill.worker: float(prefill.computing), decode.worker: float(decode.computing)}
        # Between 0 and `patience` waiting prompts nothing moves: without that band the border would swing at every
        # event, at each of which this is asked.
        moved = self._step if prefill.wants > self._patience else -self._step if not prefill.wants else 0.0
        # A share of 0 would stop a phase for good, as a step at share x takes 1/x of its time.
        share = min(self._most, max(1.0 - self._most, self._share[device] + moved))
        self._share[device] = share
        return {prefill.worker: share, decode.worker: 1.0 - share}
