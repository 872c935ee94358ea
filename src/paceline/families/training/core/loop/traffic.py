"""What ranks sent in a run: by the communicator's counts, by what backends were handed, and by the kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from paceline.families.training.core.loop.carried import tells_techniques_apart
from paceline.families.training.core.loop.trained import Trained
from paceline.worker.ranks.session import Session

NO_PASSES = "only where the family's own code runs forward and backward: pipelines and shared sequences"
COUNTED = ("wire_bytes", "peak_bytes", "messages", "pass_bytes", "pass_link_bytes", "bisection_bytes")
"""What only the communicator knows."""
HANDED = ("backend_calls", "backend_bytes")
"""What backends' own collectives were given."""
CLAIMED = ("wire_bytes", "peak_bytes", "messages", "backend_bytes")
"""What a closed form may state of bytes."""
SHARED = "the ranks share the loopback with everything else; a network namespace a rank tells them apart"
NO_INTERFACE = "no network interface carries the ranks' traffic"
NOT_ALONE = "the kernel's counters hold more than the technique's messages, or not all of them"


class Traffic:
    """What all ranks sent, gathered from each.

    Args:
        session: The rank.
        trained: What training left on it.
        steps: Of the run.
        uncounted: Why the communicator does not know all bytes; None when it does.
        passes_counted: Whether forward and backward happen where the loop counts them.
    """

    def __init__(
        self,
        session: Session,
        trained: Trained,
        *,
        steps: int,
        uncounted: str | None,
        passes_counted: bool,
    ) -> None:
        self.session, self.steps = session, steps
        self.uncounted, self.passes_counted = uncounted, passes_counted
        self.absent: dict[str, str] = {}
        passes, carried = trained.pass_bytes, trained.carried
        own = [trained.sent_bytes, trained.peak_bytes, trained.messages, sum(passes), max(passes)]
        everyone = session.control.gather(
            [
                own,
                trained.sent_to,
                [float(trained.backend_calls), trained.backend_bytes],
                [carried.data_bytes or 0.0, carried.payload_bytes or 0.0],
            ]
        )
        self._own, self._sent, self._handed, self._carried = zip(*everyone, strict=True)
        self.kernel_bytes: float | None = None
        """Of all ranks and steps, headers included."""
        # Ranks are set up alike: where this one has an interface of its own, all have.
        if carried.data_bytes is not None:
            self.kernel_bytes = sum(rank[0] for rank in self._carried)

    def metrics(self) -> dict[str, Any]:
        """Return the metrics of bytes, messages and calls; what could not be measured goes to ``absent``."""
        found = self._kernels() | self._handed_over()
        if self.uncounted is not None:
            self.absent.update(dict.fromkeys(COUNTED, self.uncounted))
        else:
            found |= self._counted() | self._between_halves()
        return {name: {"samples": [value]} for name, value in found.items()}

    def _kernels(self) -> dict[str, float]:
        """Return what the kernel carried, with and without headers, and beside what the communicator counted."""
        names = ("kernel_bytes_total", "kernel_payload_bytes", "kernel_over_counted")
        if self.kernel_bytes is None:
            reason = SHARED if self.session.interface_shared else NO_INTERFACE
            self.absent.update(dict.fromkeys(names, reason))
            return {}
        payload = sum(rank[1] for rank in self._carried)
        found = {names[0]: self.kernel_bytes / self.steps, names[1]: payload / self.steps}
        counted = sum(rank[0] for rank in self._own)
        if self.uncounted is not None:
            self.absent[names[2]] = self.uncounted
        # On one interface for all, the harness's bytes are among them, and a ratio would be no technique's.
        elif not tells_techniques_apart(self.session):
            self.absent[names[2]] = NOT_ALONE
        elif not counted:
            self.absent[names[2]] = "nothing was sent"
        else:
            found[names[2]] = self.kernel_bytes / counted
        return found

    def _handed_over(self) -> dict[str, float]:
        calls, handed = (max(rank[i] for rank in self._handed) for i in (0, 1))
        # No call and no count means that a library called the backend by itself: zero would be a false figure.
        if calls or self.uncounted is None:
            return {"backend_calls": calls / self.steps, "backend_bytes": handed / self.steps}
        self.absent.update(dict.fromkeys(HANDED, "PyTorch's own modules call it, past the communicator"))
        return {}

    def _counted(self) -> dict[str, float]:
        shares = {"wire_bytes": self.steps, "peak_bytes": 1, "messages": self.steps}
        if self.passes_counted:
            shares |= {"pass_bytes": self.steps, "pass_link_bytes": self.steps}
        else:
            self.absent |= {"pass_bytes": NO_PASSES, "pass_link_bytes": NO_PASSES}
        return {
            name: max(rank[i] for rank in self._own) / share for i, (name, share) in enumerate(shares.items())
        }

    def _between_halves(self) -> dict[str, float]:
        found = between_halves(self._sent)
        if found is not None:
            return {"bisection_bytes": found / self.steps}
        self.absent["bisection_bytes"] = "an odd number of ranks has no halves"
        return {}


def between_halves(sent: Sequence[Sequence[float]]) -> float | None:
    """Return what ranks of either half sent to those of the other; None where there are no halves.

    Args:
        sent: Bytes by sender and receiver.
    """
    half, odd = divmod(len(sent), 2)
    if odd:
        return None
    # Both directions: a link between two halves carries what goes either way.
    return float(sum(sum(row[half:] if rank < half else row[:half]) for rank, row in enumerate(sent)))
