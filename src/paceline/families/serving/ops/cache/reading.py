"""Reads texts position by position, with keys and values from what a technique has kept.

Shapes: B texts, T positions, D width, H heads, K width of a head, V symbols.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import functional

from paceline.families.reasoning.core.reasoner.network import (
    NORM_EPSILON,
    Layer,
    Network,
    rotary_tables,
    rotated,
)
from paceline.families.serving.api.caching import Cache, CachedModel, Kept, LayerWeights
from paceline.families.serving.ops.cache.texts import Texts

DTYPES = (
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.bool,
)
SAME = 1e-5
"""Of the largest number; the same operations on the same machine."""


class WrongCacheError(Exception):
    """A technique keeps or returns what is none of what was asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """What was kept when keys and values of a layer were asked for, and what they were."""

    layer: int
    kept: Sequence[Kept]
    keys_BTF: Tensor
    values_BTF: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What reading has shown."""

    losses_BT: Tensor
    """−ln p of each token but the first, [B, T − 1]."""
    bytes_per_token: float
    """Kept for a position, over all layers."""
    moments: Sequence[Moment]
    """Of the positions that were asked for, layer by layer."""


def cached_model(network: Network, bits: int) -> CachedModel:
    """Return what each layer makes keys and values with."""
    width = network.shape.width
    found: list[LayerWeights] = []
    for layer in network.layers:
        assert isinstance(layer, Layer)
        found.append(
            LayerWeights(
                gain_D=layer.attention_gain.detach().clone(),
                key_FD=layer.qkv.weight[width : 2 * width].detach().clone(),
                value_FD=layer.qkv.weight[2 * width :].detach().clone(),
                epsilon=NORM_EPSILON,
            )
        )
    return CachedModel(layers=tuple(found), bits=bits)


def whole_losses(network: Network, texts: Texts) -> Tensor:
    """Return −ln p of each token but the first by one pass over whole texts, without a cache: the oracle."""
    with torch.inference_mode():
        return _losses(network(texts.tokens_BT[:, :-1]), texts.tokens_BT[:, 1:])


def _losses(logits_BTV: Tensor, tokens_BT: Tensor) -> Tensor:
    return -logits_BTV.double().log_softmax(-1).gather(-1, tokens_BT[..., None])[..., 0]


@torch.inference_mode()
def read(
    network: Network, texts: Texts, make: Callable[[], Cache], *, bits: int, shown: Collection[int] = ()
) -> Reading:
    """Read texts over a cache, which is made anew for every question.

    Args:
        network: What reads.
        texts: What is read.
        make: The technique.
        bits: Of a kept number, for who quantises.
        shown: Positions of which what was kept and made of it is in the result.

    Raises:
        WrongCacheError: What is kept is no tensors of one position, or keys and values have another shape.
    """
    run = _Run(network=network, model=cached_model(network, bits), make=make, shown=shown)
    length = texts.tokens_BT.shape[1]
    losses = [
        _losses(run.logits(texts.tokens_BT[:, place], place)[:, None], texts.tokens_BT[:, place + 1, None])
        for place in range(length - 1)
    ]
    size = sum(t.element_size() * t.numel() for kept in run.kept for t in kept.values())
    batch = texts.tokens_BT.shape[0]
    return Reading(
        moments=tuple(run.moments),
        losses_BT=torch.cat(losses, 1),
        bytes_per_token=size / (batch * (length - 1)),
    )


@dataclass(slots=True, kw_only=True)
class _Run:
    """One reading."""

    network: Network
    model: CachedModel
    make: Callable[[], Cache]
    shown: Collection[int]
    kept: list[Kept] = field(init=False)
    moments: list[Moment] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.kept = [{} for _ in self.model.layers]

    def logits(self, tokens_B: Tensor, place: int) -> Tensor:
        """Return logits behind a position, (B, V)."""
        shape = self.network.shape
        x_B1D = self.network.embedding(tokens_B)[:, None]
        for number, layer in enumerate(self.network.layers):
            assert isinstance(layer, Layer)
            self._keep(number, x_B1D, place)
            k_BTF, v_BTF = self.keys_values(number, place + 1)
            if place in self.shown:
                self._show(number, k_BTF, v_BTF)
            normal_B1D = functional.rms_norm(x_B1D, (shape.width,), layer.attention_gain, NORM_EPSILON)
            q_B1F = normal_B1D @ layer.qkv.weight[: shape.width].T
            q_BH1K, k_BHTK, v_BHTK = (_heads(t, shape.heads) for t in (q_B1F, k_BTF, v_BTF))
            cos_TK, sin_TK = (table[: place + 1] for table in rotary_tables(shape, x_B1D.dtype))
            seen_BH1K = functional.scaled_dot_product_attention(
                rotated(q_BH1K, cos_TK[-1:], sin_TK[-1:]), rotated(k_BHTK, cos_TK, sin_TK), v_BHTK
            )
            x_B1D = x_B1D + layer.mix(seen_BH1K.transpose(1, 2).flatten(2))
            normal_B1D = functional.rms_norm(x_B1D, (shape.width,), layer.perceptron_gain, NORM_EPSILON)
            x_B1D = x_B1D + layer.down(functional.gelu(layer.up(normal_B1D)))
        x_B1D = functional.rms_norm(x_B1D, (shape.width,), self.network.final_gain, NORM_EPSILON)
        logits_BV: Tensor = (x_B1D @ self.network.embedding.weight.T)[:, 0]
        return logits_BV

    def _show(self, layer: int, k_BTF: Tensor, v_BTF: Tensor) -> None:
        kept = [{name: tensor.clone() for name, tensor in own.items()} for own in self.kept]
        self.moments.append(Moment(layer=layer, kept=kept, keys_BTF=k_BTF.clone(), values_BTF=v_BTF.clone()))

    def _keep(self, layer: int, x_B1D: Tensor, place: int) -> None:
        """Put what the technique keeps of a position behind what it kept of those before."""
        new = self.make().keep(self.model, layer, x_B1D.clone(), [dict(k) for k in self.kept])
        before = self.kept[layer]
        check_kept(new, x_B1D.shape[0])
        if place and new.keys() != before.keys():
            raise WrongCacheError(f"it keeps {sorted(new)} of position {place}, and {sorted(before)} before")
        self.kept[layer] = {
            name: torch.cat((before[name], tensor), 1) if place else tensor.clone()
            for name, tensor in new.items()
        }

    def keys_values(self, layer: int, positions: int) -> tuple[Tensor, Tensor]:
        """Return what the technique makes of what it kept, checked for its shape."""
        found = self.make().keys_values(self.model, layer, [dict(k) for k in self.kept])
        features = self.model.layers[layer].key_FD.shape[0]
        for name, tensor in zip(("keys", "values"), found, strict=True):
            if tensor.dtype != torch.float32 or tensor.shape[1:] != (positions, features):
                raise WrongCacheError(
                    f"{name} of layer {layer} are {tensor.dtype} {list(tensor.shape)}, and float32 "
                    f"[B, {positions}, {features}] were asked for"
                )
        return found


def check_kept(kept: Mapping[str, Tensor], batch: int) -> None:
    """Refuse what cannot be counted.

    Raises:
        WrongCacheError: It is no table of plain tensors of one position for every text.
    """
    if not isinstance(kept, dict) or not kept:
        raise WrongCacheError(f"what it keeps is {type(kept).__name__}, no table of tensors")
    for name, tensor in kept.items():
        if type(tensor) is not Tensor or tensor.dtype not in DTYPES or tensor.shape[:2] != (batch, 1):
            what = (
                f"{tensor.dtype} {list(tensor.shape)}"
                if isinstance(tensor, Tensor)
                else type(tensor).__name__
            )
            raise WrongCacheError(f"'{name}' is {what}, no plain tensor of [{batch}, 1, …]")


@torch.inference_mode()
def wrong_moment(
    network: Network, moments: Sequence[Moment], make: Callable[[], Cache], *, bits: int
) -> str | None:
    """Say where keys and values that are made of what was kept alone are others than before, or None."""
    model = cached_model(network, bits)
    for moment in moments:
        found = make().keys_values(model, moment.layer, moment.kept)
        for name, then, now in zip(
            ("keys", "values"), (moment.keys_BTF, moment.values_BTF), found, strict=True
        ):
            off = float((then - now).abs().max()) if then.shape == now.shape else float("inf")
            if not off <= SAME * max(float(then.abs().max()), 1.0):
                return (
                    f"{name} of layer {moment.layer} at position {then.shape[1] - 1} are off by {off:.3g} when they "
                    "are made of what was kept alone, in another process"
                )
    return None


def _heads(x_BTF: Tensor, heads: int) -> Tensor:
    return x_BTF.reshape(*x_BTF.shape[:-1], heads, -1).transpose(1, 2)
