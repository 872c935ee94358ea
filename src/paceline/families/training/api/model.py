"""The workload: a decoder-only transformer with RMS norms; published shapes may have a head of their own.

Attention is softmax over rotary positions, whose heads of keys may each serve several heads of queries (Ainslie et al.,
"GQA", 2023), or gated linear attention (Yang et al., "Gated Linear Attention Transformers with Hardware-Efficient
Training", 2023, section 4, without its norm and output gate), whose decays tell positions apart.

Shape suffixes: B sequences, T positions, D width, H heads (of queries; G of keys and values), K width of a head,
V symbols, E width of the perceptron.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from paceline.families.collectives.api.linear_attention import MIN_DECAY, recurrence
from paceline.families.training.api.own import Batch, OwnBatch
from paceline.families.training.api.sizes import GATED_LINEAR, Size

INIT_STD = 0.02

Attention = Callable[..., Tensor]
"""Queries, (B, H, T, K), keys and values, (B, G, T, K), to what is seen, (B, H, T, K); of gated linear attention also
the logarithms of decays, (B, G, T, K)."""


class RMSNorm(nn.Module):
    """Scales rows to unit root mean square, and by a learned gain (Zhang and Sennrich, NeurIPS 2019)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(width))

    def forward(self, x_BTD: Tensor) -> Tensor:
        """Return the normalised rows."""
        return functional.rms_norm(x_BTD, (x_BTD.shape[-1],), self.gain, 1e-6)


def causal_attention(q_BHTK: Tensor, k_BGTK: Tensor, v_BGTK: Tensor) -> Tensor:
    """Return attention of every position to itself and those before it, (B, H, T, K)."""
    grouped = q_BHTK.shape[1] != k_BGTK.shape[1]
    seen_BHTK = functional.scaled_dot_product_attention(
        q_BHTK, k_BGTK, v_BGTK, is_causal=True, enable_gqa=grouped
    )
    if torch.is_deterministic_algorithms_warn_only_enabled():
        _backward_in_order(seen_BHTK, (q_BHTK, k_BGTK, v_BGTK))
    return seen_BHTK


def _backward_in_order(output: Tensor, inputs: Sequence[Tensor]) -> None:
    """Let attention's backward add in a fixed order while a technique is proved.

    The fused kernels add gradients of queries with atomic operations unless torch's mode is strict; a mode that only
    warns changes nothing in them. So it is strict from where the output's gradient is known to where an input's is.
    """

    def strictly(_: Tensor) -> None:
        torch.use_deterministic_algorithms(True)

    def leniently(_: Tensor) -> None:
        torch.use_deterministic_algorithms(True, warn_only=True)

    if output.requires_grad:
        output.register_hook(strictly)  # type: ignore[no-untyped-call]  # torch's own annotation is missing
        for tensor in inputs:
            if tensor.requires_grad:
                tensor.register_hook(leniently)  # type: ignore[no-untyped-call]  # as above


def linear_attention(q_BHTK: Tensor, k_BGTK: Tensor, v_BGTK: Tensor, log_decay_BGTK: Tensor) -> Tensor:
    """Return gated linear attention, (B, H, T, K), by its definition: position after position."""
    repeats = q_BHTK.shape[1] // k_BGTK.shape[1]
    # The recurrence has no grouped form: each head of keys is repeated for the queries that it serves.
    alike = (x.repeat_interleave(repeats, dim=1) for x in (k_BGTK, v_BGTK, log_decay_BGTK))
    seen_TMK = recurrence(*(positions_first(x) for x in (q_BHTK, *alike)))
    return heads_first(seen_TMK, q_BHTK.shape[0])


def positions_first(x_BHTK: Tensor) -> Tensor:
    """Return (T, B·H, K): each head of each sequence is a head, and those of one sequence are neighbours."""
    return x_BHTK.permute(2, 0, 1, 3).flatten(1, 2)


def heads_first(x_TMK: Tensor, num_sequences: int) -> Tensor:
    """Return (B, H, T, K): what ``positions_first`` turned round."""
    length, _, width = x_TMK.shape
    return x_TMK.reshape(length, num_sequences, -1, width).permute(1, 2, 0, 3)


class Layer(nn.Module):
    """Attention and a perceptron, each normalised first and added to the stream.

    A gated perceptron has gate and value in one matrix, ``up``, one below the other: equal products, in one call.
    """

    def __init__(self, size: Size) -> None:
        super().__init__()
        width = size.width
        self.size = size
        linear = size.attention == GATED_LINEAR
        self.attend: Attention = linear_attention if linear else causal_attention
        """What mixes positions; ranks that share a sequence put their own in its place."""
        self.attention_norm = RMSNorm(width)
        keys = size.num_kv_heads * size.head_width
        self.qkv = nn.Linear(width, width + 2 * keys, bias=size.qkv_bias)
        self.forget = nn.Linear(width, keys, bias=False) if linear else None
        """Of gated linear attention: gives the decays."""
        self.mix = nn.Linear(width, width, bias=False)
        self.mlp_norm = RMSNorm(width)
        self.up = nn.Linear(width, (2 if size.gated else 1) * size.inner_width, bias=False)
        self.down = nn.Linear(size.inner_width, width, bias=False)

        self.compiled: Callable[[Tensor, Tensor, Tensor], Tensor] | None = None
        """``added``, compiled; hooks on the layer stay outside."""
        self.recomputes = False
        """Whether it keeps its input alone, and computes again in backward what backward needs (Chen et al., "Training
        Deep Nets with Sublinear Memory Cost", 2016)."""

    def forward(self, x_BTD: Tensor, cos_TK: Tensor, sin_TK: Tensor) -> Tensor:
        """Return the stream after this layer."""
        added = self.compiled or self.added
        if not self.recomputes:
            return added(x_BTD, cos_TK, sin_TK)
        # Nothing is drawn in a layer, so there is no state of a generator to bring back.
        again: Tensor = checkpoint(
            added, x_BTD, cos_TK, sin_TK, use_reentrant=False, preserve_rng_state=False
        )
        return again

    def added(self, x_BTD: Tensor, cos_TK: Tensor, sin_TK: Tensor) -> Tensor:
        """Return the stream and what attention and perceptron add to it."""
        normed_BTD = self.attention_norm(x_BTD)
        counts = [self.size.heads, self.size.num_kv_heads, self.size.num_kv_heads]
        q_BHTK, k_BGTK, v_BGTK = torch.split(self._heads(self.qkv(normed_BTD)), counts, dim=1)
        # Decays tell positions apart, so gated linear attention has no rotation.
        if self.forget is None:
            q_BHTK, k_BGTK = rotate(q_BHTK, cos_TK, sin_TK), rotate(k_BGTK, cos_TK, sin_TK)
            seen_BHTK = self.attend(q_BHTK, k_BGTK, v_BGTK)
        else:
            # In [0.9, 1): chunked forms divide by products of decays, which must not underflow.
            decay_BGTK = MIN_DECAY + (1 - MIN_DECAY) * torch.sigmoid(self._heads(self.forget(normed_BTD)))
            # The 1/√K of softmax attention, on the keys: the recurrence has no scores to scale.
            scaled_BGTK = k_BGTK * self.size.head_width**-0.5
            seen_BHTK = self.attend(q_BHTK, scaled_BGTK, v_BGTK, decay_BGTK.log())
        x_BTD = x_BTD + self.mix(seen_BHTK.transpose(1, 2).flatten(2))
        added_BTD: Tensor = x_BTD + self.perceptron(self.mlp_norm(x_BTD))
        return added_BTD

    def perceptron(self, h_BTD: Tensor) -> Tensor:
        """Return what the perceptron adds to the stream."""
        wide_BTE = self.up(h_BTD)
        if self.size.gated:
            gate_BTE, value_BTE = wide_BTE.chunk(2, dim=-1)
            wide_BTE = functional.silu(gate_BTE) * value_BTE
        else:
            wide_BTE = functional.gelu(wide_BTE)
        added_BTD: Tensor = self.down(wide_BTE)
        return added_BTD

    def _heads(self, x_BTF: Tensor) -> Tensor:
        """Cut features, F, into heads, (B, F/K, T, K)."""
        batch, length, _ = x_BTF.shape
        return x_BTF.reshape(batch, length, -1, self.size.head_width).transpose(1, 2)


class Transformer(nn.Module):
    """Predicts the next symbol at every position.

    Args:
        size: Dimensions.
        vocabulary: V.
        context: Longest sequence.
        head_bias: Whether the head adds a bias, zero at first, to the logits.
        layer: Makes a layer; by default one with a perceptron.
    """

    cos_TK: Tensor
    sin_TK: Tensor

    def __init__(
        self,
        size: Size,
        *,
        vocabulary: int,
        context: int,
        head_bias: bool = False,
        layer: Callable[[Size], Layer] = Layer,
    ) -> None:
        super().__init__()
        self.narrow: torch.dtype | None = None
        """What products are computed in where that is not float32; sums, norms and the loss stay wide."""
        self.embedding = nn.Embedding(vocabulary, size.width)
        self.layers = nn.ModuleList(layer(size) for _ in range(size.layers))
        self.norm = RMSNorm(size.width)
        self.head = None if size.tied else nn.Linear(size.width, vocabulary, bias=False)
        self.head_bias = nn.Parameter(torch.zeros(vocabulary)) if head_bias else None
        cos_TK, sin_TK = rotations(context, size.head_width, size.rotary_base)
        self.register_buffer("cos_TK", cos_TK, persistent=False)
        self.register_buffer("sin_TK", sin_TK, persistent=False)

    def initialise(self, seed: int) -> None:
        """Draw all weights: normal with σ = 0.02, products that add to the stream with σ / √(2·layers)."""
        # On the host in the parameters' order: the same weights on every device and for every number of ranks.
        generator = torch.Generator().manual_seed(seed)
        # Two products a layer add to the stream: 1/√(2·layers) keeps its variance from growing (GPT-2).
        deep = INIT_STD / math.sqrt(2 * len(self.layers))
        with torch.no_grad():
            for name, weight in self.named_parameters():
                if name.endswith("gain"):
                    weight.fill_(1.0)
                elif name.endswith("bias"):
                    weight.zero_()
                else:
                    std = deep if name.endswith(("mix.weight", "down.weight", ".down")) else INIT_STD
                    weight.copy_(torch.empty(weight.shape).normal_(0.0, std, generator=generator))

    def forward(self, symbols_BT: Tensor, places_T: Tensor | None = None) -> Tensor:
        """Return the logits, (B, T, V), of the symbols that follow.

        Args:
            symbols_BT: Symbols of the whole sequences, or of some of their positions.
            places_T: Those positions; None means all, from the first.
        """
        where = slice(symbols_BT.shape[1]) if places_T is None else places_T
        cos_TK, sin_TK = self.cos_TK[where], self.sin_TK[where]
        with torch.autocast(symbols_BT.device.type, dtype=self.narrow, enabled=self.narrow is not None):
            x_BTD = self.embedding(symbols_BT)
            for layer in self.layers:
                x_BTD = layer(x_BTD, cos_TK, sin_TK)
            head_VD = self.embedding.weight if self.head is None else self.head.weight
            # Wide, since a softmax in bfloat16 would lose the loss's digits.
            return functional.linear(self.norm(x_BTD), head_VD, self.head_bias).float()

    def recompute_layers(self) -> None:
        """Let every layer compute again in backward what it would have kept."""
        for layer in self.layers:
            assert isinstance(layer, Layer)
            layer.recomputes = True

    def compile_layers(self) -> None:
        """Compile every layer, for the shapes that it meets; equal layers share what was compiled."""
        for layer in self.layers:
            assert isinstance(layer, Layer)
            # Not the module itself: hooks of techniques that gather or free parameters must stay outside the graph.
            layer.compiled = torch.compile(layer.added, dynamic=False)


def next_symbol_loss(model: nn.Module, sequences_BS: Tensor) -> Tensor:
    """Return the mean cross-entropy of every symbol but the first, given those before it (S = T + 1), in nats."""
    logits_BTV = model(sequences_BS[:, :-1])
    return functional.cross_entropy(
        logits_BTV.reshape(-1, logits_BTV.shape[-1]), sequences_BS[:, 1:].reshape(-1)
    )


def loss_of(model: nn.Module, batch: Batch) -> Tensor:
    """Return the loss that is trained: of sequences that of their next symbols, of a user's batch what they say."""
    if isinstance(batch, OwnBatch):
        own: Tensor = model(batch)
        return own
    return next_symbol_loss(model, batch)


def loss_and_gradients(model: nn.Module, sequences_BS: Batch) -> Tensor:
    """Run forward and backward; return the loss, detached, and leave the gradients in the parameters."""
    loss = loss_of(model, sequences_BS)
    loss.backward()  # type: ignore[no-untyped-call]  # torch's own annotation is missing
    return loss.detach()


def rotations(length: int, width: int, base: float = 10_000.0) -> tuple[Tensor, Tensor]:
    """Return cosines and sines, (T, K), of rotary positions (RoFormer, section 3.2.2), in halves."""
    frequency = base ** (-torch.arange(0, width, 2, dtype=torch.float32) / width)
    angle = torch.outer(torch.arange(length, dtype=torch.float32), frequency)
    # Halves, not neighbours: rotate() pairs k with k + K/2, so both halves have the same angles.
    angle = torch.cat([angle, angle], dim=-1)
    return angle.cos(), angle.sin()


def rotate(x_BHTK: Tensor, cos_TK: Tensor, sin_TK: Tensor) -> Tensor:
    """Return x with its pairs (k, k + K/2) rotated by their position's angle (RoFormer, section 3.2.2).

    Args:
        x_BHTK: Queries or keys; other leading shapes that (T, K) broadcasts against will do.
        cos_TK: See ``rotations``.
        sin_TK: See ``rotations``.
    """
    first, second = x_BHTK.chunk(2, dim=-1)
    return x_BHTK * cos_TK + torch.cat([-second, first], dim=-1) * sin_TK
