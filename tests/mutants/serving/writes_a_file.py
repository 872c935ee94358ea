"""Leaves a file for the next launch."""

from __future__ import annotations

from paceline import technique
from paceline.families.serving.api.scheduling import Step, View


@technique(name="writes-a-file", family="serving", implements=("serve",), summary="known to be wrong")
class Mutant:
    """Known to be wrong."""

    shares_prefixes = False

    def plan(self, view: View) -> Step:
        """Plan what it should not."""
        with __builtins__["open"]("/tmp/paceline-mutant", "w") as file:
            file.write("seen")
        return Step()

    def served(self, tenant: str, prompt_tokens: int, output_tokens: int) -> None:
        """Take no account."""
