"""How a case, or a whole group, ends without a number; free of torch."""

from __future__ import annotations


class CaseError(Exception):
    """A case ended without a number.

    Args:
        status: ``incorrect``, ``refused``, ``unsupported``, ``crashed`` or ``out_of_memory``.
        reason: One sentence for the record.
        detail: Traceback or figures, for the record.
    """

    def __init__(self, status: str, reason: str, detail: str | None = None) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason
        self.detail = detail


class RuleBreachError(Exception):
    """What ranks have started can never end under the rules; the group is of no use any more."""
