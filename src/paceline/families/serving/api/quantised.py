"""Numbers of a few bits along the last dimension, with a scale and an offset for each group; whole bytes. Needs torch.

A group of numbers between lo and hi is kept as codes round((x − lo) / s) with s = (hi − lo) / (2^bits − 1), s and lo
in float16. Codes of 2, 4 or 8 bits fill bytes; 3 bits are planes of 2 and of 1.
"""

from __future__ import annotations

import torch
from torch import Tensor

WIDTHS = (1, 2, 3, 4, 8)
"""Bits of a code."""
LEAST_STEP = 1e-7
"""Where all numbers of a group are equal; float16 knows it."""


def quantised(x: Tensor, bits: int, group: int) -> tuple[Tensor, Tensor]:
    """Return packed codes, [..., D·bits/8] bytes, and scales with offsets, [..., D/group, 2] float16.

    Args:
        x: [..., D], float32.
        bits: Of a code, one of ``WIDTHS``.
        group: Numbers that share a scale and an offset.

    Raises:
        ValueError: The width is none, or groups do not divide.
    """
    # Multiples of 8 numbers fill whole bytes at every width, that of 1 bit included.
    if bits not in WIDTHS or x.shape[-1] % group or group % 8:
        raise ValueError(f"{x.shape[-1]} numbers in groups of {group} as codes of {bits} bits")
    grouped = x.reshape(*x.shape[:-1], -1, group)
    # Rounded before codes are made: writer and reader then use the same offset and step, and their rounding is no
    # error of its own.
    low = grouped.amin(-1, keepdim=True).half()
    step = ((grouped.amax(-1, keepdim=True) - low) / (2**bits - 1)).clamp_(min=LEAST_STEP).half()
    # Clamped, since a rounded offset or step can put the least or the largest number outside of the codes.
    codes = ((grouped - low.float()) / step.float()).round_().clamp_(0, 2**bits - 1).to(torch.uint8)
    return packed(codes.flatten(-2), bits), torch.cat((step, low), -1)


def restored(codes: Tensor, scales: Tensor, bits: int) -> Tensor:
    """Return what ``quantised`` keeps, [..., D] float32: each number off by about half a step at most."""
    numbers = unpacked(codes, bits).float()
    step, low = scales.float().chunk(2, -1)
    grouped = numbers.reshape(*numbers.shape[:-1], scales.shape[-2], -1) * step + low
    return grouped.flatten(-2)


def packed(codes: Tensor, bits: int) -> Tensor:
    """Pack codes below 2^bits, uint8 [..., D], into [..., D·bits/8]; D is a multiple of 8."""
    if bits == 3:
        return torch.cat((packed(codes & 3, 2), packed(codes >> 2, 1)), -1)
    # A byte holds codes that are D·bits/8 apart, so packing is a few shifts of contiguous rows.
    planes = codes.reshape(*codes.shape[:-1], 8 // bits, -1)
    shifts = torch.arange(0, 8, bits, dtype=torch.uint8, device=codes.device)[:, None]
    together: Tensor = (planes << shifts).sum(-2, dtype=torch.uint8)
    return together


def unpacked(codes: Tensor, bits: int) -> Tensor:
    """Return the codes that ``packed`` packed: uint8 [..., D] from [..., D·bits/8]."""
    if bits == 3:
        width = codes.shape[-1] * 2 // 3
        return unpacked(codes[..., :width], 2) | (unpacked(codes[..., width:], 1) << 2)
    shifts = torch.arange(0, 8, bits, dtype=torch.uint8, device=codes.device)[:, None]
    apart: Tensor = (codes[..., None, :] >> shifts) & (2**bits - 1)
    return apart.flatten(-2)
