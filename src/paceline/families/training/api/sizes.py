"""Sizes of the decoder-only transformer and its closed forms, free of torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

VOCABULARY = 64
"""Symbols of the synthetic language."""
BYTE_VALUES = 256
SOFTMAX, GATED_LINEAR = "softmax", "gated-linear"
ATTENTIONS = (SOFTMAX, GATED_LINEAR)


def vocabulary(data: str) -> int:
    """Return the number of symbols of a data source."""
    return VOCABULARY if data == "markov" else BYTE_VALUES


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """Dimensions of a model."""

    layers: int
    width: int
    heads: int
    """Those of queries."""
    kv_heads: int = 0
    """Those of keys and values, each of which serves equally many of queries; 0 means as many."""
    attention: str = SOFTMAX

    @property
    def head_width(self) -> int:
        """K."""
        return self.width // self.heads

    @property
    def num_kv_heads(self) -> int:
        """Heads of keys and values."""
        return self.kv_heads or self.heads

    def weights(self, vocabulary: int) -> int:
        """Return the number of weights in products: 12·d² a layer with as many heads of keys as of queries."""
        keys = self.num_kv_heads * self.head_width
        shared = 3 if self.attention == GATED_LINEAR else 2
        # 10·d² a layer: queries and mix d² each, the perceptron 8·d². Keys and values (and decays) d·keys each.
        return self.layers * (10 * self.width + shared * keys) * self.width + vocabulary * self.width

    def parameters(self, vocabulary: int, experts: int = 0) -> int:
        """Return the number of parameters: weights (the embedding is tied), two gains of d a layer and a last one.

        With experts there are as many perceptrons of 8·d² in a layer, and a gate of d for each.
        """
        perceptron = 8 * self.width**2
        # The base count has one perceptron already, hence experts − 1.
        more = (experts - 1) * perceptron + experts * self.width if experts else 0
        return self.weights(vocabulary) + self.layers * more + (2 * self.layers + 1) * self.width

    def flops_per_token(self, vocabulary: int, context: int, experts: int = 0, top_k: int = 0) -> float:
        """Return the operations of forward and backward for one token.

        Two for each weight in a product and twice that backward; causal attention adds 6·L·T·d (half of 12·L·T·d, since
        a token sees half of the context on average), the recurrence of gated linear attention 12·L·K·d: it writes to
        the state and reads from it. Recomputation is not counted: there is none. Of experts a token uses ``top_k``;
        slots that stay empty are not counted.
        """
        # 12·L·K·d is 6·L·(2K)·d: the state takes the place of the context.
        seen = 2 * self.head_width if self.attention == GATED_LINEAR else context
        perceptron = 8 * self.width**2
        more = (top_k - 1) * perceptron + experts * self.width if experts else 0
        weights = self.weights(vocabulary) + self.layers * more
        # 6 = 2 forward (multiply and add) + 4 backward (to the input and to the weight).
        return 6.0 * weights + 6.0 * self.layers * seen * self.width


SIZES: dict[str, Size] = {
    "nano": Size(layers=2, width=32, heads=4),
    "thin": Size(layers=18, width=32, heads=4),
    "deep": Size(layers=8, width=64, heads=4),
    "tall": Size(layers=8, width=128, heads=4),
    "tiny": Size(layers=4, width=80, heads=4),
    "mini": Size(layers=4, width=160, heads=4),
    "small": Size(layers=6, width=384, heads=6),
    "120m": Size(layers=12, width=768, heads=12),
    "1b": Size(layers=24, width=1792, heads=14),
}
"""With 64 symbols: 27 k, 0.22 M, 0.40 M, 1.6 M, 0.31 M, 1.2 M, 10.6 M, 85 M and 925 M parameters; ``nano`` is for tests
and fine-tuning by slopes, ``thin`` has 110 tensors of parameters, ``deep`` and ``tall`` are for pipelines, whose stages
are whole layers."""


def size_of(params: Mapping[str, object]) -> Size:
    """Return the dimensions of a point's model."""
    kv_heads = params.get("kv_heads")
    return replace(
        SIZES[str(params["size"])],
        kv_heads=kv_heads if isinstance(kv_heads, int) else 0,
        attention=str(params.get("attention", SOFTMAX)),
    )
