"""A model whose work the fences around techniques do not watch: it is the harness that decodes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager

from paceline.families.reasoning.core.language import Continuation, Draw, LanguageModel, Piece


class Outside:
    """A model behind connections, processes or libraries that a technique could not use; implements ``LanguageModel``.

    Args:
        model: It.
        outside: Makes a context in which nothing is held against the technique that waits.
    """

    def __init__(self, model: LanguageModel, outside: Callable[[], AbstractContextManager[None]]) -> None:
        self._model, self._outside = model, outside

    @property
    def identity(self) -> str:
        """Return the model's."""
        return self._model.identity

    @property
    def context(self) -> int:
        """Return the model's."""
        return self._model.context

    @property
    def num_parameters(self) -> int | None:
        """Return the model's."""
        return self._model.num_parameters

    def begin(self, prompt: Sequence[int], draw: Draw) -> int:
        """Open a trace."""
        with self._outside():
            return self._model.begin(prompt, draw)

    def fork(self, trace: int, forced: Sequence[int], draw: Draw) -> int:
        """Open a copy of a trace."""
        with self._outside():
            return self._model.fork(trace, forced, draw)

    def merge(self, trace: int, forks: Sequence[int], forced: Sequence[int], draw: Draw) -> int:
        """Open a trace behind forks of another one."""
        with self._outside():
            return self._model.merge(trace, forks, forced, draw)

    def share(self, trace: int, openings: Sequence[int], draws: Sequence[Draw]) -> list[int]:
        """Open traces that see each other."""
        with self._outside():
            return self._model.share(trace, openings, draws)

    def advance(self, trace: int, tokens: int, stop: Collection[int] = ()) -> None:
        """Ask for tokens."""
        with self._outside():
            self._model.advance(trace, tokens, stop)

    def poll(self) -> list[Piece]:
        """Decode."""
        with self._outside():
            return self._model.poll()

    def score(self, asked: Sequence[Continuation]) -> list[list[float]]:
        """Score."""
        with self._outside():
            return self._model.score(asked)

    def drop(self, trace: int) -> None:
        """Forget a trace."""
        with self._outside():
            self._model.drop(trace)
