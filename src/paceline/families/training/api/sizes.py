"""Sizes of the decoder-only transformer and its closed forms, free of torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

VOCABULARY = 64
"""Symbols of the synthetic language."""
BYTE_VALUES = 256
MARKOV, DIALECTS = "markov", "dialects"
SYNTHETIC = (MARKOV, DIALECTS)
"""Data whose entropy rate is known."""
SOFTMAX, GATED_LINEAR = "softmax", "gated-linear"
ATTENTIONS = (SOFTMAX, GATED_LINEAR)


def vocabulary(data: str) -> int:
    """Return the number of symbols of a data source."""
    return VOCABULARY if data.partition(":")[0] in SYNTHETIC else BYTE_VALUES


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
    inner: int = 0
    """Width of the perceptron; 0 means four times the stream's."""
    gated: bool = False
    """Whether the perceptron is SwiGLU (Shazeer, "GLU Variants Improve Transformer", 2020), of three matrices."""
    symbols: int = 0
    """Those of the published model's vocabulary; 0 means those of the data."""
    tied: bool = True
    """Whether the head is the embedding."""
    qkv_bias: bool = False
    rotary_base: float = 10_000.0

    @property
    def published(self) -> bool:
        """Whether the layers are those of published models, which not every technique can take apart."""
        return self.gated

    @property
    def inner_width(self) -> int:
        """E."""
        return self.inner or 4 * self.width

    @property
    def perceptron(self) -> int:
        """Weights of a layer's perceptron."""
        return (3 if self.gated else 2) * self.inner_width * self.width

    @property
    def head_width(self) -> int:
        """K."""
        return self.width // self.heads

    @property
    def num_kv_heads(self) -> int:
        """Heads of keys and values."""
        return self.kv_heads or self.heads

    def weights(self, vocabulary: int) -> int:
        """Return the number of weights in products: 12·d² a layer with a plain perceptron and as many heads of keys as
        of queries; the head's count whether they are the embedding's or not.
        """
        keys = self.num_kv_heads * self.head_width
        shared = 3 if self.attention == GATED_LINEAR else 2
        # Queries and mix d² each; keys and values (and decays) d·keys each.
        attention = (2 * self.width + shared * keys) * self.width
        return self.layers * (attention + self.perceptron) + vocabulary * self.width

    def parameters(self, vocabulary: int, experts: int = 0) -> int:
        """Return the number of parameters: weights, an embedding that is not tied, biases, two gains of d a layer and a
        last one.

        With experts there are as many perceptrons in a layer, and a gate of d for each.
        """
        # The base count has one perceptron already, hence experts − 1.
        more = (experts - 1) * self.perceptron + experts * self.width if experts else 0
        if self.qkv_bias:
            more += self.width + 2 * self.num_kv_heads * self.head_width
        apart = 0 if self.tied else vocabulary * self.width
        return self.weights(vocabulary) + apart + self.layers * more + (2 * self.layers + 1) * self.width

    def flops_per_token(self, vocabulary: int, context: int, experts: int = 0, top_k: int = 0) -> float:
        """Return the operations of forward and backward for one token.

        Two for each weight in a product and twice that backward; causal attention adds 6·L·T·d (half of 12·L·T·d, since
        a token sees half of the context on average), the recurrence of gated linear attention 12·L·K·d: it writes to
        the state and reads from it. Recomputation is not counted: there is none. Of experts a token uses ``top_k``;
        slots that stay empty are not counted.
        """
        # 12·L·K·d is 6·L·(2K)·d: the state takes the place of the context.
        seen = 2 * self.head_width if self.attention == GATED_LINEAR else context
        more = (top_k - 1) * self.perceptron + experts * self.width if experts else 0
        weights = self.weights(vocabulary) + self.layers * more
        # 6 = 2 forward (multiply and add) + 4 backward (to the input and to the weight).
        return 6.0 * weights + 6.0 * self.layers * seen * self.width


_llama = partial(Size, gated=True, symbols=128_256, rotary_base=500_000.0)
"""As in config.json of meta-llama/Llama-3.1-8B, -70B and Llama-3.2-1B, but for the scaling of rotary positions by which
they reach further than the contexts of their pre-training."""
_qwen = partial(Size, gated=True, qkv_bias=True, rotary_base=1_000_000.0)
"""As in config.json of Qwen/Qwen2.5-0.5B and -7B."""

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
    "llama-100m": _llama(layers=12, width=768, heads=12, kv_heads=4, inner=2048, symbols=32_000),
    "llama-3.2-1b": _llama(layers=16, width=2048, heads=32, kv_heads=8, inner=8192),
    "llama-3.1-8b": _llama(layers=32, width=4096, heads=32, kv_heads=8, inner=14_336, tied=False),
    "llama-3.1-70b": _llama(layers=80, width=8192, heads=64, kv_heads=8, inner=28_672, tied=False),
    "qwen2.5-0.5b": _qwen(layers=24, width=896, heads=14, kv_heads=2, inner=4864, symbols=151_936),
    "qwen2.5-7b": _qwen(
        layers=28, width=3584, heads=28, kv_heads=4, inner=18_944, symbols=152_064, tied=False
    ),
}
"""With 64 symbols: 27 k, 0.22 M, 0.40 M, 1.6 M, 0.31 M, 1.2 M, 10.6 M, 85 M and 925 M parameters; ``nano`` is for tests
and fine-tuning by slopes, ``thin`` has 110 tensors of parameters, ``deep`` and ``tall`` are for pipelines, whose stages
are whole layers. The others have published shapes, and the vocabularies of those models whatever the data are:
1.24 G, 8.03 G, 70.6 G, 0.49 G and 7.62 G parameters; ``llama-100m`` (100 M) is a small one of the same kind, with Llama
2's vocabulary."""


SHAPE = "shape:"
"""Begins a size that is written out: ``shape:L12-d768-h12-kv4-ff2048-v32000``."""
LETTERS = {
    "L": "layers",
    "d": "width",
    "h": "heads",
    "kv": "kv_heads",
    "ff": "inner",
    "v": "symbols",
    "rope": "rotary_base",
}
UNTIED, QKV_BIAS = "untied", "qkvbias"
SHAPE_FORM = (
    "L (layers), d (width), h (heads), kv, ff (inner width), v (vocabulary), rope, each with its number"
)


def shape_text(size: Size) -> str:
    """Write a size of a published kind out; ``shape_of`` reads it."""
    found = [f"{key}{number:.0f}" for key, name in LETTERS.items() if (number := getattr(size, name))]
    found += [flag for flag, has in ((UNTIED, not size.tied), (QKV_BIAS, size.qkv_bias)) if has]
    return SHAPE + "-".join(found)


def shape_of(text: str) -> Size:
    """Read a size of a published kind (SwiGLU, rotary positions, RMS norms) that is written out.

    Raises:
        ValueError: It says something else than numbers and flags that a size has, or the numbers fit no model.
    """
    found: dict[str, int] = {}
    flags: set[str] = set()
    for part in text.removeprefix(SHAPE).split("-"):
        key = part.rstrip("0123456789")
        number = part[len(key) :]
        if part in (UNTIED, QKV_BIAS):
            flags.add(part)
        elif key not in LETTERS or not number or LETTERS[key] in found or not 0 < int(number) < 1 << 40:
            raise ValueError(f"'{part}' of the shape is not one of: {SHAPE_FORM}; {UNTIED}, {QKV_BIAS}")
        else:
            found[LETTERS[key]] = int(number)
    missing = [key for key in ("L", "d", "h") if LETTERS[key] not in found]
    if missing:
        raise ValueError(f"the shape does not say {', '.join(missing)}; it has: {SHAPE_FORM}")
    size = Size(
        layers=found["layers"],
        width=found["width"],
        heads=found["heads"],
        kv_heads=found.get("kv_heads", 0),
        inner=found.get("inner", 0),
        symbols=found.get("symbols", 0),
        gated=True,
        tied=UNTIED not in flags,
        qkv_bias=QKV_BIAS in flags,
        rotary_base=float(found.get("rotary_base", 10_000)),
    )
    if size.width % (2 * size.heads):
        raise ValueError(f"a width of {size.width} is no even number for each of {size.heads} heads")
    return size


def num_symbols(size: Size, data: str) -> int:
    """Return the symbols of a model's vocabulary: its data's, or the published model's, of which the data use some."""
    return max(size.symbols, vocabulary(data))


UNKNOWN = Size(layers=0, width=0, heads=1)
"""Of a user's own module, of which no dimensions are known."""


def size_of(params: Mapping[str, object]) -> Size:
    """Return the dimensions of a point's model; ``UNKNOWN`` where it is the user's own."""
    if params.get("model") is not None:
        return UNKNOWN
    name, kv_heads = str(params["size"]), params.get("kv_heads")
    size = shape_of(name) if name.startswith(SHAPE) else SIZES[name]
    return replace(
        size,
        kv_heads=kv_heads if isinstance(kv_heads, int) else size.kv_heads,
        attention=str(params.get("attention", SOFTMAX)),
    )
