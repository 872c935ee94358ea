"""Codecs that lossy collectives share: packed bits, uniform buckets with a codebook, ternary values, top-k.

A codec turns float32 values into a message of bytes and back, without loops over elements. A message is one
``uint8`` tensor; its floats (scales, codebooks) come first, so that they are aligned. Packing is *planar*: the codes
are cut into as many consecutive planes as there are codes in a byte, and byte i holds the i-th code of every plane.
That needs the same bytes as packing neighbours, and only whole-plane operations.

Sizes are exact: ``*_bytes`` functions say how long a message is, and ``cost`` formulas are built from them. Values
are flat, (m,) float32; a message is (``*_bytes``,) uint8 on the same device, and ``encode_*`` writes all of it.
Shapes: m values, L layers of E elements, C chunks, k values chosen in a chunk.
"""

from __future__ import annotations

import torch
from torch import Tensor

FLOAT_BYTES = 4
NUM_BUCKETS = 256
# 12 bits for an index: two indices fill three bytes (``pack_indices``).
INDEX_CHUNK = 4096
"""Elements of a chunk that a 12-bit index can address."""


def packed_bytes(count: int, bits: int) -> int:
    """Return the bytes of ``count`` codes of 1, 2 or 4 bits, the last byte filled up."""
    return -(-count * bits // 8)


def pack(codes_m: Tensor, bits: int) -> Tensor:
    """Pack codes (m,) below 2^bits (uint8, bits divides 8) into (``packed_bytes``,) uint8."""
    num_planes, count = 8 // bits, codes_m.numel()
    width = packed_bytes(count, bits)
    packed = torch.zeros(width, dtype=torch.uint8, device=codes_m.device)
    for plane in range(num_planes):
        part = codes_m[plane * width : (plane + 1) * width]
        packed[: part.numel()] |= part << (plane * bits)
    return packed


def unpack(packed: Tensor, bits: int, count: int) -> Tensor:
    """Return the codes, (count,) uint8, that ``pack`` packed."""
    num_planes, width = 8 // bits, packed.numel()
    planes = torch.empty(num_planes, width, dtype=torch.uint8, device=packed.device)
    mask = (1 << bits) - 1
    for plane in range(num_planes):
        torch.bitwise_and(packed >> (plane * bits), mask, out=planes[plane])
    return planes.view(-1)[:count]


def index_bytes(count: int) -> int:
    """Return the bytes of ``count`` 12-bit indices: three for each pair, an odd one out counting as a pair."""
    return (count + 1) // 2 * 3


def pack_indices(indices_k: Tensor) -> Tensor:
    """Pack indices (k,) below 4096, of any integer dtype, into (``index_bytes``,) uint8, planar."""
    pairs = (indices_k.numel() + 1) // 2
    low = indices_k[:pairs].to(torch.int32)
    high = torch.zeros_like(low)
    high[: indices_k.numel() - pairs] = indices_k[pairs:]
    planes = (low & 255, (low >> 8) | ((high & 15) << 4), high >> 4)
    return torch.cat([p.to(torch.uint8) for p in planes])


def unpack_indices(packed: Tensor, count: int) -> Tensor:
    """Return the indices, (count,) int64, that ``pack_indices`` packed."""
    first, middle, last = packed.view(3, -1).to(torch.int64)
    low = first | ((middle & 15) << 8)
    high = (middle >> 4) | (last << 4)
    return torch.cat([low, high])[:count]


def bucket_bytes(count: int) -> int:
    """Return the bytes of an 8-bit message: the codebook and a byte for each value; nothing for no values."""
    return count + NUM_BUCKETS * FLOAT_BYTES if count else 0


def encode_buckets(values_m: Tensor, message: Tensor, *, clip_sigmas: float = 6.0) -> None:
    """Write values as codes of 256 uniform buckets over mean ± clip_sigmas·σ, with each bucket's mean as codebook.

    Values beyond the clip fall into the outer buckets and share their means.
    Source: INTELLECT-1 Technical Report, the int8 all-reduce.
    """
    if not values_m.numel():
        return
    mean = values_m.mean()
    sigma = (values_m - mean).square_().mean().sqrt_()
    # Equal values have σ = 0: the clamp keeps 0/0 out, and all of them fall into the middle bucket.
    width = (2 * clip_sigmas / NUM_BUCKETS * sigma).clamp_(min=torch.finfo(torch.float32).tiny)
    scaled = (values_m - mean).div_(width).add_(NUM_BUCKETS // 2).clamp_(0, NUM_BUCKETS - 1)
    # The conversion truncates, so that bucket i holds what lies i to i + 1 widths above the lower clip.
    codes = scaled.to(torch.uint8)
    # Means instead of midpoints: errors inside a bucket then sum to zero. In float64, since a bucket may hold millions.
    sums = torch.bincount(codes, weights=values_m.to(torch.float64), minlength=NUM_BUCKETS)
    sizes = torch.bincount(codes, minlength=NUM_BUCKETS)
    head = NUM_BUCKETS * FLOAT_BYTES
    # An empty bucket is divided by 1 instead of 0; no code refers to it.
    message[:head].view(torch.float32).copy_(sums / sizes.clamp_(min=1))
    message[head:].copy_(codes)


def decode_buckets(message: Tensor) -> Tensor:
    """Return the values, (m,) float32, of an 8-bit message: every code's entry in the codebook."""
    if not message.numel():
        return torch.empty(0, dtype=torch.float32, device=message.device)
    head = NUM_BUCKETS * FLOAT_BYTES
    return message[:head].view(torch.float32).index_select(0, message[head:].to(torch.int32))


def sign_bytes(count: int) -> int:
    """Return the bytes of a one-bit message: a scale and a bit for each value; nothing for no values."""
    return FLOAT_BYTES + packed_bytes(count, 1) if count else 0


def encode_signs(values_m: Tensor, message: Tensor) -> None:
    """Write the values' signs (zero counts as positive) and their mean magnitude, the best scale in least squares.

    Source: Tang et al., "1-bit Adam", 2021.
    """
    if values_m.numel():
        message[:FLOAT_BYTES].view(torch.float32).copy_(values_m.abs().mean())
        message[FLOAT_BYTES:].copy_(pack((values_m >= 0).to(torch.uint8), 1))


def decode_signs(message: Tensor, count: int) -> Tensor:
    """Return the values ±scale, (count,) float32, of a one-bit message."""
    if not count:
        return torch.empty(0, dtype=torch.float32, device=message.device)
    scale = message[:FLOAT_BYTES].view(torch.float32)
    return unpack(message[FLOAT_BYTES:], 1, count).to(torch.float32).mul_(2).sub_(1).mul_(scale)


def num_parts(count: int, part: int) -> int:
    """Return how many parts of at most ``part`` elements hold ``count`` elements."""
    return -(-count // part)


def ternary_bytes(count: int, layer: int) -> int:
    """Return the bytes of a ternary message: a scale for each layer of ``layer`` values, two bits for each value."""
    return num_parts(count, layer) * FLOAT_BYTES + packed_bytes(count, 2)


def encode_ternary(
    values_m: Tensor,
    message: Tensor,
    generator: torch.Generator,
    *,
    layer: int,
    clip_sigmas: float = 0.0,
) -> None:
    """Write s·sign(v)·b with b drawn from Bernoulli(|v|/s) and s the layer's largest magnitude, so that E = v.

    With ``clip_sigmas`` above zero values are first clipped to that many standard deviations of their layer (about
    zero, where gradients lie), which lowers the variance and costs the unbiasedness of the clipped values.
    Source: Wen et al., "TernGrad", NIPS 2017, sections 3.1 and 3.3.
    """
    count = values_m.numel()
    num_layers = num_parts(count, layer)
    padded = torch.zeros(num_layers * layer, dtype=torch.float32, device=values_m.device)
    padded[:count] = values_m
    rows_LE = padded.view(num_layers, layer)
    if clip_sigmas > 0:
        sizes_L1 = torch.full((num_layers, 1), float(layer), device=values_m.device)
        # The last layer may be padded: its zeros must not lower its standard deviation.
        sizes_L1[-1] = count - (num_layers - 1) * layer
        # Before the scale is taken: clipping is there to lower the largest magnitude,
        # which is the scale (TernGrad, 3.3).
        limit_L1 = clip_sigmas * (rows_LE.square().sum(dim=1, keepdim=True) / sizes_L1).sqrt_()
        rows_LE = rows_LE.clamp(-limit_L1, limit_L1)
    magnitude_LE = rows_LE.abs()
    scale_L1 = magnitude_LE.amax(dim=1, keepdim=True)
    # A layer of zeros has scale 0: the clamp makes its chances 0 instead of NaN.
    chance_LE = magnitude_LE.div_(scale_L1.clamp(min=torch.finfo(torch.float32).tiny))
    draw_LE = torch.rand(rows_LE.shape, generator=generator, device=values_m.device)
    # 0: zero, 1: +s, 2: −s
    # Draws lie in [0, 1) and the comparison is strict: a chance of 1 always comes up, one of 0 never.
    codes_LE = (draw_LE < chance_LE).to(torch.uint8) << (rows_LE < 0).to(torch.uint8)
    head = num_layers * FLOAT_BYTES
    message[:head].view(torch.float32).copy_(scale_L1.view(-1))
    message[head:].copy_(pack(codes_LE.view(-1)[:count], 2))


def decode_ternary(message: Tensor, count: int, *, layer: int) -> Tensor:
    """Return the values, (count,) float32, of a ternary message."""
    num_layers = num_parts(count, layer)
    head = num_layers * FLOAT_BYTES
    scale_L = message[:head].view(torch.float32)
    codes = unpack(message[head:], 2, count)
    padded = torch.zeros(num_layers * layer, dtype=torch.float32, device=message.device)
    padded[:count] = (codes & 1).to(torch.float32) - (codes >> 1).to(torch.float32)
    return padded.view(num_layers, layer).mul_(scale_L.view(-1, 1)).view(-1)[:count]


def top_k_selected(count: int, k: int) -> int:
    """Return how many of ``count`` values are sent when each chunk of 4096 sends its ``k`` largest."""
    full, tail = divmod(count, INDEX_CHUNK)
    return full * min(k, INDEX_CHUNK) + min(k, tail)


def top_k_bytes(count: int, k: int, bits: int = 2) -> int:
    """Return the bytes of a sparse message: two levels for each chunk, 12 + 2 bits for each value sent.

    With 32 bits there are no levels: values travel as they are.
    """
    sent = top_k_selected(count, k)
    if bits == 32:
        return sent * FLOAT_BYTES + index_bytes(sent)
    return num_parts(count, INDEX_CHUNK) * 2 * FLOAT_BYTES + index_bytes(sent) + packed_bytes(sent, 2)


def encode_top_k(values_m: Tensor, message: Tensor, k: int, bits: int = 2) -> None:
    """Write each chunk's ``k`` largest values by magnitude: 12-bit index, sign bit, and one of two levels.

    A chunk's levels are the mean of its chosen magnitudes at or above their mean, and of those below. With 32 bits the
    values are written themselves. Source: Sarfi et al., "SparseLoCo", 2025; the levels are ours.
    """
    count = values_m.numel()
    if bits == 32:
        _encode_top_k_values(values_m, message, k)
        return
    head = num_parts(count, INDEX_CHUNK) * 2 * FLOAT_BYTES
    levels_C2 = message[:head].view(torch.float32).view(-1, 2)
    indices, codes = [], []
    start = 0
    for rows_CE in _chunk_rows(values_m):
        # Unsorted: order carries no meaning, since each index travels with its code.
        chosen_Ck = rows_CE.abs().topk(min(k, rows_CE.shape[1]), dim=1, sorted=False).indices
        value_Ck = rows_CE.gather(1, chosen_Ck)
        magnitude_Ck = value_Ck.abs()
        high_Ck = magnitude_Ck >= magnitude_Ck.mean(dim=1, keepdim=True)
        stop = start + rows_CE.shape[0]
        # The mean is the level with the least squared error. A level without members is
        # divided by 1; no code refers to it.
        for level, member_Ck in ((0, ~high_Ck), (1, high_Ck)):
            total_C = (magnitude_Ck * member_Ck).sum(dim=1)
            levels_C2[start:stop, level] = total_C / member_Ck.sum(dim=1).clamp(min=1)
        indices.append(chosen_Ck.view(-1))
        codes.append((high_Ck.to(torch.uint8) | ((value_Ck < 0).to(torch.uint8) << 1)).view(-1))
        start = stop
    packed = torch.cat([pack_indices(torch.cat(indices)), pack(torch.cat(codes), 2)])
    message[head:].copy_(packed)


def _encode_top_k_values(values_m: Tensor, message: Tensor, k: int) -> None:
    indices, values = [], []
    for rows_CE in _chunk_rows(values_m):
        chosen_Ck = rows_CE.abs().topk(min(k, rows_CE.shape[1]), dim=1, sorted=False).indices
        indices.append(chosen_Ck.view(-1))
        values.append(rows_CE.gather(1, chosen_Ck).view(-1))
    head = top_k_selected(values_m.numel(), k) * FLOAT_BYTES
    message[:head].view(torch.float32).copy_(torch.cat(values))
    message[head:].copy_(pack_indices(torch.cat(indices)))


def decode_top_k(message: Tensor, count: int, k: int, bits: int = 2) -> tuple[Tensor, Tensor]:
    """Return what a sparse message of ``count`` elements holds, in the order of chunks.

    Returns:
        Positions (``top_k_selected``,) int64, each once, and values of that shape, float32.
    """
    sent = top_k_selected(count, k)
    # Every chunk but the last sends exactly k, so the place in the message tells the chunk and 12 bits are enough.
    chunk_of = torch.arange(sent, device=message.device).div_(min(k, INDEX_CHUNK), rounding_mode="floor")
    if bits == 32:
        head = sent * FLOAT_BYTES
        positions = unpack_indices(message[head:], sent).add_(chunk_of, alpha=INDEX_CHUNK)
        return positions, message[:head].view(torch.float32)
    num_chunks = num_parts(count, INDEX_CHUNK)
    head = num_chunks * 2 * FLOAT_BYTES
    middle = head + index_bytes(sent)
    levels_C2 = message[:head].view(torch.float32).view(-1, 2)
    codes = unpack(message[middle:], 2, sent).to(torch.int64)
    magnitude = levels_C2[chunk_of, codes & 1]
    positions = unpack_indices(message[head:middle], sent).add_(chunk_of, alpha=INDEX_CHUNK)
    return positions, magnitude * (1 - 2 * (codes >> 1))


def _chunk_rows(values_m: Tensor) -> list[Tensor]:
    """Return the full chunks as rows of one matrix, and the shorter last chunk as a row of its own."""
    full = values_m.numel() // INDEX_CHUNK * INDEX_CHUNK
    rows = [values_m[:full].view(-1, INDEX_CHUNK), values_m[full:].view(1, -1)]
    return [r for r in rows if r.numel()]
