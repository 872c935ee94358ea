"""Sizes of the decoder-only transformer and its closed forms, free of torch."""

from __future__ import annotations

from dataclasses import dataclass

VOCABULARY = 64
"""Symbols of the synthetic language."""
BYTE_VALUES = 256


def vocabulary(data: str) -> int:
    """Return the number of symbols of a data source."""
    return VOCABULARY if data == "markov" else BYTE_VALUES


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """Dimensions of a model."""

    layers: int
    width: int
    heads: int

    def parameters(self, vocabulary: int) -> int:
        """Return the number of parameters: per layer 12·d² weights and 2·d gains, the embedding (tied), a last gain."""
        return self.layers * (12 * self.width**2 + 2 * self.width) + vocabulary * self.width + self.width

    def flops_per_token(self, vocabulary: int, context: int) -> float:
        """Return the operations of forward and backward for one token.

        Two for each weight in a product and twice that backward; causal attention adds 6·L·T·d (half of 12·L·T·d, since
        a token sees half of the context on average). Recomputation is not counted: there is none.
        """
        weights = 12 * self.layers * self.width**2 + vocabulary * self.width
        return 6.0 * weights + 6.0 * self.layers * context * self.width


SIZES: dict[str, Size] = {
    "nano": Size(layers=2, width=32, heads=2),
    "deep": Size(layers=8, width=64, heads=4),
    "tall": Size(layers=8, width=128, heads=4),
    "tiny": Size(layers=4, width=80, heads=4),
    "mini": Size(layers=4, width=160, heads=4),
    "small": Size(layers=6, width=384, heads=6),
    "120m": Size(layers=12, width=768, heads=12),
    "1b": Size(layers=24, width=1792, heads=14),
}
"""With 64 symbols: 27 k, 0.40 M, 1.6 M, 0.31 M, 1.2 M, 10.6 M, 85 M and 925 M parameters; ``nano`` is for tests,
``deep`` and ``tall`` for pipelines, whose stages are whole layers."""
