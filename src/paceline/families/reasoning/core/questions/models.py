"""Who answers: the point's model, its partner, the judge that compares traces, and what names their draws."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from paceline.families.reasoning.core.language import LanguageModel
from paceline.families.reasoning.core.questions.refusals import PlanError

Draws = Callable[[int, int], tuple[int, ...]]
"""Gives the key of a trace by its question's number and its index."""


class Judge(Protocol):
    """Says whether two unfinished traces of a question will come to one answer."""

    def probability(self, prompt: Sequence[int], one: Sequence[int], other: Sequence[int]) -> float:
        """Return it, given the prompt and what each has written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Models:
    """Who answers."""

    model: LanguageModel
    partner: LanguageModel | None = None
    partner_weight: float = 1.0
    """The partner's parameters over the model's."""
    judge: Judge | None = None

    def get(self, partner: bool) -> LanguageModel:
        """Return the model, or its partner.

        Raises:
            PlanError: There is no partner.
        """
        if not partner:
            return self.model
        if self.partner is None:
            raise PlanError("the point has no partner: set one, as in 'partner: strong'")
        return self.partner
