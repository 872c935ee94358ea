"""What all techniques of a block share: models, questions, seeds, and the archives of what was decoded."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from paceline.families.reasoning.api.requests import Finished, Method, Question, Task
from paceline.families.reasoning.core.language import LanguageModel
from paceline.families.reasoning.core.questions.executor import Executor
from paceline.families.reasoning.core.questions.models import Draws, Judge, Models
from paceline.families.reasoning.core.questions.reading import Asked, Reading
from paceline.families.reasoning.core.questions.textual import Writer
from paceline.families.reasoning.core.recordings.archive import Archive, Recording, digest_of
from paceline.families.reasoning.core.recordings.replay import Replay


@dataclass(frozen=True, slots=True, kw_only=True)
class Archives:
    """What the model and its partner decoded and scored."""

    model: Archive
    partner: Archive | None

    @property
    def num_tokens(self) -> int:
        """Decoded tokens of all traces."""
        return self.model.num_tokens + (0 if self.partner is None else self.partner.num_tokens)

    def absorb(self, other: Archives) -> None:
        """Take over what others hold beyond these."""
        self.model.absorb(other.model)
        if self.partner is not None and other.partner is not None:
            self.partner.absorb(other.partner)

    def digest(self) -> str:
        """Return the SHA-256 of all traces."""
        own = self.model.digest()
        return own if self.partner is None else digest_of(own, self.partner.digest())


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What all techniques of a block share."""

    model: LanguageModel
    partner: LanguageModel | None = None
    judge: Judge | None = None
    task: Task
    asked: tuple[Asked, ...]
    """Questions by their number."""
    reading: Reading
    seeds: Mapping[str, int]
    """Of ``problems``, the ``places`` at which they stand, and the draws of ``traces``."""
    width: int
    num_orders: int
    repeatable: bool = True
    """Whether equal draws give equal tokens; else techniques answer on what this launch has recorded."""
    timed: bool = True
    """Whether a model decodes while techniques answer; else their seconds say nothing."""
    recorded_sha256: str | None = None
    """Of the file of traces that answers in the place of a model."""
    writer: Writer | None = None
    """What makes tokens of texts, where the model's own do not."""

    @property
    def seed(self) -> int:
        """Of the traces' draws."""
        return self.seeds["traces"]

    @property
    def questions(self) -> tuple[Question, ...]:
        """What techniques see of the problems."""
        return tuple(
            Question(number=number, samples=self.task.samples, num_parts=one.num_parts)
            for number, one in enumerate(self.asked)
        )

    def draws(self, number: int, index: int) -> tuple[int, ...]:
        """Return the key of a question's trace."""
        # No technique in the key: equal indices are equal traces, so techniques are compared on the same luck.
        return (self.seed, number, index)

    def reordered(self, order: int) -> Draws:
        """Return the draws of a replay, in which each question's traces come in another order."""

        def draws(number: int, index: int) -> tuple[int, ...]:
            places = list(range(self.task.samples))
            # Each question by itself, so that one order is not lucky for all at once.
            random.Random(f"{self.seed}/{number}/{order}").shuffle(places)
            return self.draws(number, places[index])

        return draws

    @property
    def partner_weight(self) -> float:
        """The partner's parameters over the model's; 1 without a partner, or where they are not known."""
        own = self.model.num_parameters
        other = None if self.partner is None else self.partner.num_parameters
        # A token's work is proportional to parameters, at contexts as short as these.
        return other / own if own and other else 1.0

    def archives(self) -> Archives:
        """Return empty archives."""
        partner = None if self.partner is None else Archive(self.partner.identity)
        return Archives(model=Archive(self.model.identity), partner=partner)

    def recording(self, into: Archives) -> Models:
        """Return the models, written down into archives."""
        partner = None
        if self.partner is not None and into.partner is not None:
            partner = Recording(self.partner, into.partner)
        return self._models(Recording(self.model, into.model), partner)

    def answering(self, archives: Archives) -> Models:
        """Return what techniques answer by: the models, or recorded traces where draws do not repeat."""
        return self.recording(archives) if self.repeatable else self.replaying(archives, live=True)

    def replaying(self, of: Archives, *, live: bool) -> Models:
        """Return models that answer from archives; what is missing is decoded and added, or refused."""
        context, partner = self.model.context, None
        if self.partner is not None and of.partner is not None:
            partner = Replay(of.partner, self.partner if live else None, context=self.partner.context)
        return self._models(
            Replay(of.model, self.model if live else None, context=context, repeatable=self.repeatable),
            partner,
        )

    def _models(self, model: LanguageModel, partner: LanguageModel | None) -> Models:
        return Models(model=model, partner=partner, partner_weight=self.partner_weight, judge=self.judge)

    def run(self, models: Models, method: Method, draws: Draws | None = None) -> list[Finished]:
        """Let a method answer all questions."""
        executor = Executor(
            models,
            self.task,
            [one.script for one in self.asked],
            reader=self.reading.answer,
            draws=draws or self.draws,
            width=self.width,
        )
        return executor.run(self.questions, method)

    def right(self, finished: Sequence[Finished]) -> list[float]:
        """Grade answers: 1 where one is right."""
        return [float(self.reading.right(f.number, f.answer)) for f in finished]
