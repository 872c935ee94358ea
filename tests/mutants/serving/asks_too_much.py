"""Computes tokens that a request does not have."""

from __future__ import annotations

from paceline import technique
from paceline.families.serving.api.scheduling import Step, View


@technique(name="asks-too-much", family="serving", implements=("serve",), summary="known to be wrong")
class Mutant:
    """Known to be wrong."""

    shares_prefixes = False

    def plan(self, view: View) -> Step:
        """Plan what it should not."""
        return Step(tokens={r.number: r.missing + 1 for r in (*view.running, *view.waiting)[:1]})

    def served(self, tenant: str, prompt_tokens: int, output_tokens: int) -> None:
        """Take no account."""
