"""Static batching: a batch is made when the one before has ended, and nobody joins it.

The foil of Yu, Jeong, Kim, Kim and Chun, 2022, "Orca" (OSDI 2022), section 2: servers that batch whole requests.

Algorithm: when nothing runs, admit as many requests as there are places and memory, in the order of arrival; compute
all of them until the last has ended.
Cost: a batch takes as many steps as its longest answer; everybody who arrives meanwhile waits for that.
Differences: places of requests that have ended are not computed, where a padded batch would; that favours the foil.
Limits: it is one. Where memory ends, the latest admitted gives way and is computed with the next batch.
"""

from __future__ import annotations

from paceline import technique
from paceline.families.serving.api.scheduling import Room, Step, View


@technique(
    name="static-batching",
    family="serving",
    implements=("serve", "simulate"),
    summary="a batch runs until its last request has ended",
)
class StaticBatching:
    """Admits a batch at a time."""

    shares_prefixes = False

    def __init__(self) -> None:
        self._batch: set[int] = set()

    def plan(self, view: View) -> Step:
        """Go on with the batch, or make the next one."""
        room = Room(view)
        room.decode(view.running)
        for request in view.running:
            if request.missing > 1:
                room.take(request, min(request.missing, room.tokens))
        known = {r.number for r in (*view.running, *view.waiting)}
        # Finished requests are in neither list. A preempted one still waits and stays of the batch.
        self._batch &= known
        if not self._batch:
            self._batch = {r.number for r in view.waiting[: view.max_batch]}
        for request in view.waiting:
            # Members that had no budget or memory yet are admitted as it comes free; nobody else is.
            if request.number in self._batch and not room.take(request, min(request.missing, room.tokens)):
                break
        return room.step

    def served(self, tenant: str, prompt_tokens: int, output_tokens: int) -> None:
        """Take no account."""
