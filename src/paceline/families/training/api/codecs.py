"""Codes for training: four-bit floats (E3M0: sign, three bits of exponent) for outer gradients, and uniform levels."""

from __future__ import annotations

import torch
from torch import Tensor

from paceline.families.collectives.api.codecs import FLOAT_BYTES, num_parts, pack, packed_bytes, unpack

BLOCK = 4096
"""Elements that share a scale."""
ZERO = 7
"""Exponent code that stands for zero; e below it for a magnitude of scale · 2^−e."""


def float4_bytes(count: int) -> int:
    """Return the bytes of a message: a scale for each block, half a byte for each value."""
    return num_parts(count, BLOCK) * FLOAT_BYTES + packed_bytes(count, 4) if count else 0


def encode_float4(values_m: Tensor, message: Tensor) -> None:
    """Write each value as the nearest of ±scale·2^−e (e = 0 … 6) and zero; scale is its block's largest magnitude.

    The four-bit floats, E3M0, of Streaming DiLoCo (Douillard et al., 2025).

    Args:
        values_m: (m,), any float dtype; coded in float32.
        message: ``float4_bytes(m)`` bytes to fill, uint8: scales first, then two codes a byte.
    """
    count = values_m.numel()
    if not count:
        return
    blocks = num_parts(count, BLOCK)
    # Zeros that pad the last block cannot change its largest magnitude.
    padded = torch.zeros(blocks * BLOCK, dtype=torch.float32, device=values_m.device)
    padded[:count] = values_m
    rows_BE = padded.view(blocks, BLOCK)
    scale_B = rows_BE.abs().amax(dim=1)
    # tiny stands for the scale of a block of zeros: 0/tiny is 0, where 0/0 would be NaN.
    share_BE = rows_BE.abs() / scale_B.clamp(min=torch.finfo(torch.float32).tiny)[:, None]
    # the middle between 2^−e and 2^−(e+1) is 0.75 · 2^−e
    exponent_BE = (share_BE / 0.75).clamp(min=1e-9).log2_().neg_().ceil_().clamp_(0, ZERO - 1)
    # The middle between the least magnitude, 2^−6, and zero is 2^−7.
    exponent_BE[share_BE < 2.0**-ZERO] = ZERO
    codes = exponent_BE.to(torch.uint8) | ((rows_BE < 0).to(torch.uint8) << 3)
    head = blocks * FLOAT_BYTES
    message[:head].view(torch.float32).copy_(scale_B)
    message[head:].copy_(pack(codes.view(-1)[:count], 4))


def decode_float4(message: Tensor, count: int) -> Tensor:
    """Return the ``count`` float32 values, (count,), of a message of ``float4_bytes(count)`` bytes, uint8."""
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


def float_bytes(count: int, bits: int) -> int:
    """Return the bytes of a message of four-bit floats, or of 32-bit ones, which are values as they are."""
    return float4_bytes(count) if bits == 4 else count * FLOAT_BYTES


def encode_floats(values_m: Tensor, message: Tensor, bits: int) -> None:
    """Write values, (m,), as floats of 4 or 32 bits into ``float_bytes(m, bits)`` bytes, uint8."""
    if bits == 4:
        encode_float4(values_m, message)
    else:
        message.view(torch.float32).copy_(values_m)


def decode_floats(message: Tensor, count: int, bits: int) -> Tensor:
    """Return the ``count`` float32 values of a message of floats of 4 or 32 bits."""
    return decode_float4(message, count) if bits == 4 else message.view(torch.float32)


LEVEL_BLOCK = 1024
"""Elements that share a smallest and a largest value."""


def level_bytes(count: int, bits: int) -> int:
    """Return the bytes of a message of uniform levels: two floats for each block and ``bits`` for each value.

    With 32 bits there are no levels: values travel as they are.
    """
    if bits == 32:
        return count * FLOAT_BYTES
    return num_parts(count, LEVEL_BLOCK) * 2 * FLOAT_BYTES + packed_bytes(count, bits) if count else 0


def encode_levels(
    values_m: Tensor, message: Tensor, bits: int, *, generator: torch.Generator | None = None
) -> None:
    """Write each value as one of 2^bits levels between its block's smallest and largest value.

    Args:
        values_m: (m,), any float dtype; coded in float32.
        message: ``level_bytes(m, bits)`` bytes to fill, uint8: smallest values, steps, then codes.
        bits: 1, 2, 4 or 8; 32 for values as they are.
        generator: Rounds at random to one of the two neighbours, without bias; to the nearest without it.
    """
    count = values_m.numel()
    if not count:
        return
    if bits == 32:
        message.view(torch.float32).copy_(values_m)
        return
    blocks = num_parts(count, LEVEL_BLOCK)
    # Padded with a value that occurs: zeros could widen the last block's range and coarsen its levels.
    padded = values_m[-1:].float().repeat(blocks * LEVEL_BLOCK)
    padded[:count] = values_m
    rows_BE = padded.view(blocks, LEVEL_BLOCK)
    low_B, high_B = rows_BE.aminmax(dim=1)
    step_B = (high_B - low_B) / ((1 << bits) - 1)
    # A constant block has step 0: with tiny in its place all are level 0, which decodes to the value itself.
    place_BE = (rows_BE - low_B[:, None]) / step_B.clamp(min=torch.finfo(torch.float32).tiny)[:, None]
    if generator is None:
        place_BE.round_()
    else:
        drawn_BE = torch.rand(place_BE.shape, generator=generator, device=place_BE.device)
        # ⌊x + u⌋ with u uniform on [0, 1) has the mean x: rounding without bias (QSDP's gradients).
        place_BE.add_(drawn_BE).floor_()
    # (high − low)/step may exceed the last level by a rounding error, which would overflow the code.
    codes = place_BE.clamp_(0, (1 << bits) - 1).to(torch.uint8).view(-1)[:count]
    head = blocks * 2 * FLOAT_BYTES
    # low and step, not low and high: the decoder multiplies by the very step that the encoder divided by.
    message[:head].view(torch.float32).copy_(torch.stack([low_B, step_B]).view(-1))
    message[head:].copy_(pack(codes, bits))


def decode_levels(message: Tensor, count: int, bits: int) -> Tensor:
    """Return the ``count`` float32 values, (count,), of a message of ``level_bytes(count, bits)`` bytes, uint8."""
    if not count:
        return torch.empty(0, dtype=torch.float32, device=message.device)
    if bits == 32:
        return message.view(torch.float32)
    head = num_parts(count, LEVEL_BLOCK) * 2 * FLOAT_BYTES
    low_B, step_B = message[:head].view(torch.float32).view(2, -1)
    values: Tensor = unpack(message[head:], bits, count).to(torch.float32)
    values.mul_(step_B.repeat_interleave(LEVEL_BLOCK)[:count])
    values.add_(low_B.repeat_interleave(LEVEL_BLOCK)[:count])
    return values
