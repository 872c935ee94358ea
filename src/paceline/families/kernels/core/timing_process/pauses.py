"""A pause in a timed pass: no clock runs, and outputs are looked at between two calls.

The time of one call is only what a pass says if each call did its own work. A technique could otherwise note the calls
of a pass and compute them together in its last one, or compute all of them in the first. So at one place of each pass,
drawn anew, elements of outputs are kept: those of calls that have returned must not change any more, those of calls to
come must still hold what they were filled with.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import torch
from torch import Tensor

from paceline.families.kernels.core.timing_process.working_set import WorkingSet, plain
from paceline.worker.ranks.session import CaseError

# Bound at import, before a technique could replace what copies and compares; no seed that it could know.
_copy, _equal, _empty_like = torch.Tensor.copy_, torch.equal, torch.empty_like
_flatten, _view, _byte = torch.Tensor.flatten, torch.Tensor.view, torch.uint8
_bytes = bytes
_random = random.SystemRandom()
LAST = 3
"""Elements of the call before the pause: it is the one whose work is most likely left for later."""
OTHERS = 3
"""Elements of any calls before the pause, and as many of calls after it."""


class Pause:
    """One pause of one pass.

    Args:
        called: The working sets of the pass, filled, in the order of their calls; two at the least.
        device: On which they lie.
    """

    def __init__(self, called: Sequence[WorkingSet], device: torch.device) -> None:
        self.after = 1 + _random.randrange(len(called) - 1)
        """Calls before the pause."""
        done, ahead = called[: self.after], called[self.after :]
        kind = _Here if device.type == "cpu" else _There
        self._done = [kind(working) for working in [*[done[-1]] * LAST, *_random.choices(done, k=OTHERS)]]
        self._ahead = [kind(working) for working in _random.choices(ahead, k=OTHERS)]
        for element in self._ahead:
            element.keep()

    def look(self) -> None:
        """Keep what the outputs hold now; on an accelerator the device copies when it gets there."""
        for element in self._done:
            element.keep()
        for element in self._ahead:
            element.keep_again()

    def check(self) -> None:
        """Hold what was kept against what there is now; call it when the pass is over.

        Raises:
            CaseError: An output was written before its call, or after it.
        """
        if any(element.changed_meanwhile() for element in self._ahead):
            raise CaseError("incorrect", "an output was written before its call: by the call of another")
        if any(element.changed() for element in self._done):
            raise CaseError(
                "incorrect", "an output was written after its call had returned: its work was put off"
            )


class _Here:
    """An element in the host's memory, past all of torch's operators."""

    def __init__(self, working: WorkingSet) -> None:
        self._working = working
        # Mapped before the pass: the fences refuse the reading of addresses while a technique runs.
        self._memory = working.mapped(working.choose())
        self._before = self._kept = b""

    def keep(self) -> None:
        self._before = self._kept = _bytes(self._memory)

    def keep_again(self) -> None:
        self._kept = _bytes(self._memory)

    def changed_meanwhile(self) -> bool:
        return self._kept != self._before

    def changed(self) -> bool:
        return _bytes(self._memory) != self._kept


class _There:
    """An element in a device's memory: the device itself copies it, in the order of the calls."""

    def __init__(self, working: WorkingSet) -> None:
        output, element = working.choose()
        # Made before the pass, so that a pause only queues copies up.
        self._element: Tensor = _flatten(plain(working.outputs[output]))[element : element + 1]
        self._before, self._kept = _empty_like(self._element), _empty_like(self._element)

    def keep(self) -> None:
        _copy(self._before, self._element)
        _copy(self._kept, self._element)

    def keep_again(self) -> None:
        _copy(self._kept, self._element)

    def changed_meanwhile(self) -> bool:
        return not _same(self._before, self._kept)

    def changed(self) -> bool:
        return not _same(self._element, self._kept)


def _same(one: Tensor, other: Tensor) -> bool:
    # As bytes: not a number equals nothing.
    return _equal(_view(one, _byte), _view(other, _byte))
