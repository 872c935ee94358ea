"""Answers that other calls carry on from, read while they come.

A turn that follows another at once is due when that one's answer has ended. Reading a long answer then takes some
milliseconds of the event loop, for which the turn, and all others, would be late.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from paceline.families.serving.core.load.calls import Call
from paceline.families.serving.core.load.log.entries import Entry
from paceline.families.serving.core.load.log.events import StreamReader, read_stream

Answer = tuple[int, ...] | str
"""Token ids where the server tells them, else the text."""


class Answers:
    """Answers of one process's calls, as far as others carry on from them.

    Args:
        calls: All calls of the process.
        entries: Their entries, whose bytes are added elsewhere.
    """

    def __init__(self, calls: Iterable[Call], entries: Mapping[int, Entry]) -> None:
        self._entries = entries
        self._carried = {call.after[0] for call in calls if call.carries}
        self._readers: dict[int, StreamReader] = {}
        """Of the calls under way."""
        self._answers: dict[int, Answer] = {}

    def sent(self, number: int) -> None:
        """Take note that a call was sent, once more or for the first time."""
        if number in self._carried:
            self._readers[number] = StreamReader()

    def read_on(self) -> None:
        """Read what has come meanwhile."""
        for number, reader in self._readers.items():
            if self._plain(number):
                reader.read(self._entries[number].chunks)

    def ended(self, number: int) -> None:
        """Take note that a call is over, whatever became of it."""
        reader = self._readers.pop(number, None)
        if reader is None:
            return
        entry = self._entries[number]
        # What is packed has to be unpacked as a whole, for which the reader of whole answers knows the rules.
        stream = (
            reader.ended(entry.chunks)
            if self._plain(number)
            else read_stream(entry.chunks, encoding=entry.encoding)
        )
        self._answers[number] = stream.token_ids if stream.token_ids is not None else stream.text

    def answer(self, number: int) -> Answer:
        """Return the answer of a call that is over."""
        return self._answers[number]

    def _plain(self, number: int) -> bool:
        return (self._entries[number].encoding or "identity").strip().lower() == "identity"
