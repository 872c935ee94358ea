"""Four-bit floats for outer gradients: a sign and three bits of exponent, no mantissa (E3M0)."""

from __future__ import annotations

import torch
from torch import Tensor

from paceline.families.collectives.codecs import FLOAT_BYTES, num_parts, pack, packed_bytes, unpack

BLOCK = 4096
"""Elements that share a scale."""
ZERO = 7
"""Exponent code that stands for zero; e below it for a magnitude of scale · 2^−e."""


def float4_bytes(count: int) -> int:
    """Return the bytes of a message: a scale for each block, half a byte for each value."""
    return num_parts(count, BLOCK) * FLOAT_BYTES + packed_bytes(count, 4) if count else 0


def encode_float4(values_m: Tensor, message: Tensor) -> None:
    """Write each value as the nearest of ±scale·2^−e (e = 0 … 6) and zero; scale is its block's largest magnitude."""
    count = values_m.numel()
    if not count:
        return
    blocks = num_parts(count, BLOCK)
    padded = torch.zeros(blocks * BLOCK, dtype=torch.float32, device=values_m.device)
    padded[:count] = values_m
    rows_BE = padded.view(blocks, BLOCK)
    scale_B = rows_BE.abs().amax(dim=1)
    share_BE = rows_BE.abs() / scale_B.clamp(min=torch.finfo(torch.float32).tiny)[:, None]
    # the middle between 2^−e and 2^−(e+1) is 0.75 · 2^−e
    exponent_BE = (share_BE / 0.75).clamp(min=1e-9).log2_().neg_().ceil_().clamp_(0, ZERO - 1)
    exponent_BE[share_BE < 2.0**-ZERO] = ZERO
    codes = exponent_BE.to(torch.uint8) | ((rows_BE < 0).to(torch.uint8) << 3)
    head = blocks * FLOAT_BYTES
    message[:head].view(torch.float32).copy_(scale_B)
    message[head:].copy_(pack(codes.view(-1)[:count], 4))


def decode_float4(message: Tensor, count: int) -> Tensor:
    """Return the ``count`` float32 values of a message."""
    if not count:
        return torch.empty(0, dtype=torch.float32, device=message.device)
    blocks = num_parts(count, BLOCK)
    head = blocks * FLOAT_BYTES
    codes = unpack(message[head:], 4, count)
    exponent = (codes & 7).to(torch.float32)
    magnitude = torch.where(exponent == ZERO, 0.0, torch.exp2(-exponent))
    signed = magnitude * (1 - 2 * (codes >> 3).to(torch.float32))
    scale_B = message[:head].view(torch.float32)
    return signed * scale_B.repeat_interleave(BLOCK)[:count]
