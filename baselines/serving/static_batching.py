"""Static batching: a batch is made when the one before has ended, and nobody joins it.

The baseline of Yu, Jeong, Kim, Kim and Chun, 2022, "Orca" (OSDI 2022), section 2: servers that schedule whole requests.

Algorithm: when nothing of the last batch is left, the first requests in the queue, as many as there are places, are the
next batch; all of them are computed until the last has ended.
Cost: a batch takes as many steps as its longest answer; everybody who arrives meanwhile waits for that.
Differences: the paper's servers return a batch as a whole, and compute padding and places of requests that have ended.
Here a token is delivered when it comes, nothing is padded, and an empty place costs nothing, all in its favour.
Memory is taken as it is needed, not for the longest answer. Members without room yet are admitted as it comes free;
where it ends, the latest admitted gives way and is computed anew within its batch.
Limits: places stay empty from the end of a short answer to the end of the longest one.
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
