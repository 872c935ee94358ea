"""A question's traces: what each was begun from, what it holds, and what of it has to be kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(slots=True, kw_only=True)
class Trace:
    """One trace of a question."""

    handle: int
    """The model's."""
    partner: bool = False
    """Whether that is the point's partner."""
    index: int | None
    """Which sample it is; None of copies."""
    key: tuple[int, ...]
    """Of its draw."""
    temperature: float
    origin: int | None = None
    """Number of the trace whose text it continues."""
    parent: int | None = None
    """Number of the trace whose cache it continues: one of the same model."""
    inherited: tuple[int, ...] = ()
    """Tokens of its parent after the prompt, as they were then."""
    forced: tuple[int, ...] = ()
    """Tokens that it was made to continue by."""
    tokens: list[int] = field(default_factory=list)
    """Those that it decoded."""
    num_latest: int = 0
    """Decoded ones of its latest piece."""
    num_judged: int = 0
    """Tokens after the prompt that the judge has read."""
    ended: bool = False
    dropped: bool = False
    num_copies: int = 0
    """Probes and other copies of it."""
    forked: set[int] = field(default_factory=set)
    """Its parts that were begun."""
    joined: bool = False
    shared: bool = False
    """Whether it sees others, which its text does not hold."""
    merged: bool = False
    """Whether its forks were merged, or it continues such a merge."""

    @property
    def text(self) -> tuple[int, ...]:
        """All tokens after the prompt."""
        return (*self.inherited, *self.forced, *self.tokens)

    @property
    def stopped(self) -> bool:
        """Whether it is a sample that was begun and did not come to its end."""
        return self.index is not None and bool(self.tokens) and not self.ended


def kept_tokens(traces: Mapping[int, Trace], live: set[int]) -> int:
    """Return how many tokens after the prompt live traces hold together; what one continues of another counts once."""
    held: dict[int, int] = {}
    for number in live:
        current, length = number, len(traces[number].text)
        while True:
            trace = traces[current]
            # What it holds beyond its parent; of the parent only as much as was there when it was copied.
            own = length - len(trace.inherited)
            # The longest stretch that any live trace needs of it: shorter ones are beginnings of that, and count once.
            held[current] = max(held.get(current, 0), own)
            if trace.parent is None:
                break
            current, length = trace.parent, len(trace.inherited)
    return sum(held.values())


def nearest(traces: Mapping[int, Trace], number: int, *, partner: bool) -> int | None:
    """Return the trace, among one and those that it continues, whose cache a model can go on from; None without one.

    It has to be there still, and to hold nothing but a beginning of the text.
    """
    text = traces[number].text
    current: int | None = number
    while current is not None:
        trace = traces[current]
        held = trace.text
        # A trace that has gone on since then holds other tokens behind the common beginning, and its cache is of no
        # use.
        if trace.partner == partner and not trace.dropped and text[: len(held)] == held:
            return current
        current = trace.origin
    return None
