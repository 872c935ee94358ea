"""Imports the engine, to look at what it should not see."""

from __future__ import annotations

from paceline import technique
from paceline.families.serving.api.scheduling import Step, View
from paceline.families.serving.core.engine import core as _core  # noqa: F401


@technique(name="reads-the-engine", family="serving", implements=("serve",), summary="known to be wrong")
class Mutant:
    """Known to be wrong."""

    shares_prefixes = False

    def plan(self, view: View) -> Step:
        """Plan what it should not."""
        return Step()

    def served(self, tenant: str, prompt_tokens: int, output_tokens: int) -> None:
        """Take no account."""
