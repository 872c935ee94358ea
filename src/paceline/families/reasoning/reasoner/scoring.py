"""Scores continuations, and keeps the caches of what was scored: the next step of the same text is read alone."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import torch
from torch import Tensor

from paceline.families.reasoning.reasoner.decoder import Decoder
from paceline.families.reasoning.reasoner.network import Network

MAX_KEPT = 256
"""Texts whose caches are kept, the latest ones."""


class Scorer:
    """Log-probabilities of given tokens; works in one slot of a decoder of its own."""

    def __init__(self, network: Network) -> None:
        self._decoder = Decoder(network)
        self._slot = self._decoder.cache.take()
        self._kept: OrderedDict[tuple[int, ...], Tensor] = OrderedDict()
        """Keys and values by text, of all of its tokens but the last."""
        self.num_read = 0
        """Tokens that were read so far."""

    def score(self, prompt: Sequence[int], continuation: Sequence[int]) -> list[float]:
        """Return the log-probability of each token of a continuation, at temperature 1."""
        if not continuation:
            return []
        text, start, cache = (*prompt, *continuation), 0, self._decoder.cache
        cache.reserve(len(text))
        parent = self._kept.get(tuple(prompt))
        if parent is not None:
            self._kept.move_to_end(tuple(prompt))
            start = len(prompt) - 1
            cache.put(self._slot, parent)
        logits_TV = self._decoder.logits(self._slot, start, text[start:-1])[-len(continuation) :]
        self.num_read += len(text) - 1 - start
        self._kept[text] = cache.get(self._slot, len(text) - 1)
        while len(self._kept) > MAX_KEPT:
            self._kept.popitem(last=False)
        targets_T1 = torch.tensor(continuation)[:, None]
        return [float(x) for x in logits_TV.log_softmax(-1).gather(1, targets_T1)[:, 0]]
