"""The denoiser: a transformer over patches of an image that says the noise in it (Peebles and Xie, "Scalable
Diffusion Models with Transformers", 2023, with scales and shifts from the time, and no gates).

Every layer costs the same, so that equal numbers of layers are equal shares of the work.

Shape suffixes: B images, S side of an image, T patches, D width, H heads, K width of a head.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

NORM_EPSILON = 1e-6
LONGEST_WAVE = 1e4


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Numbers that the weights' shapes follow from."""

    side: int = 16
    """Of an image, in pixels of one channel."""
    patch: int = 4
    """Side of a patch."""
    width: int = 64
    layers: int = 12
    heads: int = 4

    @property
    def patches(self) -> int:
        """Return how many there are."""
        return (self.side // self.patch) ** 2


class Layer(nn.Module):
    """Attention over all patches and a perceptron; the time scales and shifts what each of them reads."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape, width = shape, shape.width
        # A scale and a shift for each of the two norms: adaptive layer norm, as in DiT.
        self.by_time = nn.Linear(width, 4 * width)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.mix = nn.Linear(width, width, bias=False)
        self.up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)

    def forward(self, x_BTD: Tensor, time_D: Tensor) -> Tensor:
        """Return the stream after this layer, (B, T, D).

        Args:
            x_BTD: The stream before it.
            time_D: What ``Network.times`` says of the step's time, (D) or (B, 1, D).
        """
        batch, patches, width = x_BTD.shape
        heads = (batch, patches, 3, self.shape.heads, width // self.shape.heads)
        scale, shift, scale_too, shift_too = self.by_time(time_D).chunk(4, -1)
        # 1 + scale, so that a layer whose time says nothing is a plain pre-normalised one.
        read_BTD = functional.rms_norm(x_BTD, (width,), eps=NORM_EPSILON) * (1 + scale) + shift
        q_BHTK, k_BHTK, v_BHTK = self.qkv(read_BTD).view(heads).permute(2, 0, 3, 1, 4)
        seen_BHTK = functional.scaled_dot_product_attention(q_BHTK, k_BHTK, v_BHTK)
        x_BTD = x_BTD + self.mix(seen_BHTK.transpose(1, 2).reshape(batch, patches, width))
        read_BTD = functional.rms_norm(x_BTD, (width,), eps=NORM_EPSILON) * (1 + scale_too) + shift_too
        added_BTD: Tensor = self.down(functional.gelu(self.up(read_BTD)))
        return x_BTD + added_BTD


class Network(nn.Module):
    """An image with noise and a time in, the noise out."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        pixels = shape.patch**2
        self.patches = nn.Linear(pixels, shape.width)
        self.places_TD = nn.Parameter(torch.zeros(shape.patches, shape.width))
        self.time = nn.Linear(shape.width, shape.width)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.out = nn.Linear(shape.width, pixels)

    def embed(self, images_BSS: Tensor) -> Tensor:
        """Return what enters the first layer, (B, T, D)."""
        side, patch = self.shape.side // self.shape.patch, self.shape.patch
        cut = images_BSS.view(-1, side, patch, side, patch).transpose(2, 3).reshape(-1, side**2, patch**2)
        entered: Tensor = self.patches(cut) + self.places_TD
        return entered

    def times(self, time: Tensor) -> Tensor:
        """Return what layers know of times in [0, 1]: (D) of (1), (B, 1, D) of (B, 1, 1)."""
        half = self.shape.width // 2
        waves = LONGEST_WAVE ** -(torch.arange(half, dtype=torch.float64, device=time.device) / half)
        # Stretched to DDPM's step numbers, for which these waves were made; in float64, as angles of hundreds lose
        # digits.
        angles = 1000.0 * time.double() * waves
        parts = torch.cat((angles.cos(), angles.sin()), -1).to(self.places_TD.dtype)
        known: Tensor = functional.silu(self.time(parts))
        return known

    def read_out(self, x_BTD: Tensor) -> Tensor:
        """Return the noise that the last layer's stream says, (B, S, S)."""
        side, patch = self.shape.side // self.shape.patch, self.shape.patch
        said: Tensor = self.out(functional.rms_norm(x_BTD, (self.shape.width,), eps=NORM_EPSILON))
        return (
            said.view(-1, side, side, patch, patch)
            .transpose(2, 3)
            .reshape(-1, self.shape.side, self.shape.side)
        )

    def forward(self, images_BSS: Tensor, time: Tensor) -> Tensor:
        """Return the noise in images at a time, (B, S, S)."""
        x_BTD, known = self.embed(images_BSS), self.times(time)
        for layer in self.layers:
            x_BTD = layer(x_BTD, known)
        return self.read_out(x_BTD)
