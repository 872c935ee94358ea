"""Returns something of its own instead of a step."""

from __future__ import annotations

from paceline import technique
from paceline.families.serving.api.scheduling import Step, View


@technique(name="counts-for-itself", family="serving", implements=("serve",), summary="known to be wrong")
class Mutant:
    """Known to be wrong."""

    shares_prefixes = False

    def plan(self, view: View) -> Step:
        """Plan what it should not."""
        return {"tokens": {0: 1}}  # type: ignore[return-value]

    def served(self, tenant: str, prompt_tokens: int, output_tokens: int) -> None:
        """Take no account."""
