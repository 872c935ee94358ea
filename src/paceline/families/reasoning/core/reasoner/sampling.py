"""How logits become tokens: by numbers that belong to a trace, never to its batch."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

MANTISSA_BITS = 53


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """One token for every row, (B,)."""

    tokens: NDArray[np.int64]
    logprobs: Floats
    """Natural logarithm of the token's probability at temperature 1."""
    entropies: Floats
    """Nats, of the distribution at temperature 1."""


def uniform_numbers(key: Sequence[int], count: int) -> Floats:
    """Return the first numbers, from 0 up to but not 1, of the stream that a key names.

    The counter-based Philox generator (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011) is keyed
    by a digest. Its raw words are shifted here, because NumPy promises the words of later versions and not what is
    made of them.
    """
    name = ",".join(str(part) for part in key)
    # A digest spreads keys that differ in one small number over all of Philox's keys.
    digest = hashlib.blake2b(name.encode(), digest_size=16).digest()
    words = np.random.Philox(key=int.from_bytes(digest, "little")).random_raw(count)
    return np.asarray(words >> np.uint64(64 - MANTISSA_BITS), dtype=np.float64) * 2.0**-MANTISSA_BITS


def choose(logits_BV: Floats, temperatures_B: Floats, numbers_B: Floats) -> Chosen:
    """Return the token where each row's cumulative distribution passes its number; the likeliest at temperature 0."""
    # The largest becomes 0, so that no exponential overflows.
    shifted_BV = logits_BV - logits_BV.max(-1, keepdims=True)
    logprobs_BV = shifted_BV - np.log(np.exp(shifted_BV).sum(-1, keepdims=True))
    greedy_B = temperatures_B == 0
    cumulative_BV = np.exp(shifted_BV / np.where(greedy_B, 1.0, temperatures_B)[:, None]).cumsum(-1)
    # Inversion: one number decides one token, so equal numbers give equal tokens. Scaled by the sum, which saves a
    # division of all.
    passed_B = (cumulative_BV <= (numbers_B * cumulative_BV[:, -1])[:, None]).sum(-1)
    # A number next to 1 may round up to the whole sum.
    sampled_B = np.minimum(passed_B, logits_BV.shape[1] - 1)
    tokens_B = np.where(greedy_B, logits_BV.argmax(-1), sampled_B)
    return Chosen(
        tokens=tokens_B,
        logprobs=np.take_along_axis(logprobs_BV, tokens_B[:, None], -1)[:, 0],
        entropies=-(np.exp(logprobs_BV) * logprobs_BV).sum(-1),
    )
