"""Disaggregation: some devices compute prompts, others answers; keys and values move from the ones to the others.

Zhong, Liu, Chen, Hu, Zhu, Liu, Jin and Zhang, 2024, "DistServe: Disaggregating Prefill and Decoding for
Goodput-optimized Large Language Model Serving" (OSDI 2024), section 4.3 for where a request goes.

Algorithm: a request's prompt is computed on the device for prompts with the fewest tokens to compute; with its first
token its keys and values go over a link to the device for answers with the fewest requests, where it gets the others.
The sender keeps them until the receiver has room for them.
Cost: n · b bytes of a prompt of n tokens with b bytes of keys and values a token; an instance of p and d devices holds
p + d copies of the weights. A device for prompts holds a prompt's blocks until the receiver has its copy.
Differences: a device is an instance, and how many compute prompts is an option; the paper finds numbers and parallelism
of both phases by simulation. Its receiver pulls when it has room; here a transfer begins with the first token, and its
copy is taken in when there is room. Prompts are computed in parts within a step's budget, where the paper batches whole
ones. What the receiver has to preempt it computes anew itself.
Limits: one phase's devices are idle while the other's are full; on one device there are two memories and two copies of
the weights, and each phase has a fixed share of it.
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
    UnsupportedError,
    Worker,
    least_loaded,
)
from paceline.families.serving.api.scheduling import Request


@technique(
    name="pd-disaggregated",
    family="serving",
    implements=("simulate",),
    summary="prompts on some devices, answers on others; keys and values move over a link",
)
class Disaggregated:
    """Divides devices into those for prompts and those for answers.

    Args:
        prefill_devices: How many compute prompts, where there are several.
        prefill_share: Of the only device, where there is one; of its memory too.
    """

    def __init__(self, *, prefill_devices: int = 1, prefill_share: float = 0.5) -> None:
        self._prefill_devices, self._share = prefill_devices, prefill_share
        self._prefill: tuple[int, ...] = ()
        self._decode: tuple[int, ...] = ()

    def layout(self, given: Given) -> Layout:
        """Divide.

        Raises:
            UnsupportedError: There is one device, without room for a second copy of the weights and two caches.
        """
        if given.devices == 1:
            # Blocks are counted beside one copy of the weights; a second instance on the device needs its own.
            room = given.blocks_per_device - given.weight_blocks
            first = round(room * self._share)
            if not 0 < first < room:
                raise UnsupportedError(
                    f"a second copy of the weights takes {given.weight_blocks} of the device's "
                    f"{given.blocks_per_device} blocks: no room for two caches"
                )
            memories: tuple[Memory, ...] = (
                Memory(device=0, blocks=first),
                Memory(device=0, blocks=room - first),
            )
        else:
            memories = tuple(Memory(device=d, blocks=given.blocks_per_device) for d in range(given.devices))
        cut = 1 if given.devices == 1 else min(max(1, self._prefill_devices), given.devices - 1)
        self._prefill, self._decode = tuple(range(cut)), tuple(range(cut, len(memories)))
        workers = tuple(Worker(memory=m, scheduler=InParts()) for m in range(len(memories)))
        return Layout(memories=memories, workers=workers)

    def route(self, tenant: str, prompt_tokens: int, loads: Sequence[Load]) -> int:
        """Take the device for prompts with the fewest tokens to compute."""
        return least_loaded(loads, self._prefill)

    def go_on(self, request: Request, memory: int, loads: Sequence[Load]) -> int:
        """Send it to the device for answers with the fewest requests; of equals to the one with most free blocks."""
        # Requests before blocks: a decode's time per token grows with its batch; what is on its way counts as waiting.
        return min(
            self._decode, key=lambda m: (loads[m].running + loads[m].waiting, -loads[m].free_blocks, m)
        )

    def shares(self, device: int, workers: Sequence[Busy]) -> Mapping[int, float]:
        """Give a device to its worker, or divide the only one."""
        if len(workers) == 1:
            return {workers[0].worker: 1.0}
        return {w.worker: self._share if w.worker in self._prefill else 1.0 - self._share for w in workers}
