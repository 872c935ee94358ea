"""Scores continuations, and keeps the caches of what was scored: the next step of the same text is read alone."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import torch
from torch import Tensor

from paceline.families.reasoning.core.language import Continuation
from paceline.families.reasoning.core.reasoner.decoder import Decoder
from paceline.families.reasoning.core.reasoner.network import Network

MAX_KEPT = 512
"""Texts whose caches are kept, the latest ones."""
MAX_ROWS = 64
"""Texts that are read at once."""


class Scorer:
    """Log-probabilities of given tokens; works in slots of a decoder of its own."""

    def __init__(self, network: Network) -> None:
        self._decoder = Decoder(network)
        self._slots: list[int] = []
        self._kept: OrderedDict[tuple[int, ...], Tensor] = OrderedDict()
        """Keys and values by text, of all of its tokens but the last."""
        self.num_read = 0
        """Tokens that were read so far."""

    def score(self, asked: Sequence[Continuation]) -> list[list[float]]:
        """Return the log-probability of each token of each continuation, at temperature 1."""
        found: list[list[float]] = [[] for _ in asked]
        there = [i for i, (_, continuation) in enumerate(asked) if continuation]
        # what is read from its beginning would make padding of the others
        for known in (False, True):
            rows = [i for i in there if (tuple(asked[i][0]) in self._kept) == known]
            for first in range(0, len(rows), MAX_ROWS):
                part = rows[first : first + MAX_ROWS]
                for i, values in zip(part, self._read([asked[i] for i in part]), strict=True):
                    found[i] = values
        return found

    def _read(self, asked: Sequence[Continuation]) -> list[list[float]]:
        cache = self._decoder.cache
        texts = [(*prompt, *continuation) for prompt, continuation in asked]
        while len(self._slots) < len(texts):
            self._slots.append(cache.take())
        slots = self._slots[: len(texts)]
        cache.reserve(max(len(text) for text in texts))
        starts = []
        for slot, (prompt, _) in zip(slots, asked, strict=True):
            parent = self._kept.get(tuple(prompt))
            # The prompt's last token is read again: its logits say how likely the first token of the continuation is.
            starts.append(0 if parent is None else len(prompt) - 1)
            if parent is not None:
                self._kept.move_to_end(tuple(prompt))
                cache.put(slot, parent)
        # Without the last token, of which nothing behind it is asked.
        chunks = [text[start:-1] for text, start in zip(texts, starts, strict=True)]
        logits_BTV = self._decoder.logits(slots, starts, chunks)
        self.num_read += sum(len(chunk) for chunk in chunks)
        for slot, text in zip(slots, texts, strict=True):
            # By the whole text: a tree's next review continues exactly this one.
            self._kept[text] = cache.get(slot, len(text) - 1)
        while len(self._kept) > MAX_KEPT:
            self._kept.popitem(last=False)
        return [
            _gathered(logits_TV[: len(chunk)], continuation)
            for logits_TV, chunk, (_, continuation) in zip(logits_BTV, chunks, asked, strict=True)
        ]


def _gathered(logits_TV: Tensor, continuation: Sequence[int]) -> list[float]:
    targets_T1 = torch.tensor(continuation)[:, None]
    own_TV = logits_TV[-len(continuation) :].log_softmax(-1)
    return [float(x) for x in own_TV.gather(1, targets_T1)[:, 0]]
