"""The tensors of one call: varied inputs, poisoned outputs, and what must not change about them."""

from __future__ import annotations

import ctypes
import random
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from paceline.worker.ranks.session import CaseError

# Bound at import, before a technique could replace what fills and compares its tensors.
_equal, _mul = torch.equal, torch.mul
_copy, _fill, _roll = torch.Tensor.copy_, torch.Tensor.fill_, torch.Tensor.roll
_empty_like, _std, _normal = torch.empty_like, torch.std, torch.Tensor.normal_
_view, _to = torch.Tensor.view, torch.Tensor.to
_float8, _byte, _single = torch.float8_e4m3fn, torch.uint8, torch.float32
_memmove, _string_at, _char = ctypes.memmove, ctypes.string_at, ctypes.c_char
_type = type
# No seed that a technique could know: which elements are probed cannot be foreseen.
_random = random.SystemRandom()


def plain(tensor: Tensor) -> Tensor:
    """Return a tensor as the harness moves and compares it: float8, which torch hardly computes with, as its bytes."""
    return _view(tensor, _byte) if tensor.dtype == _float8 else tensor


class WorkingSet:
    """Inputs and outputs of one call."""

    def __init__(self, inputs: list[Tensor], outputs: list[Tensor]) -> None:
        self.inputs = inputs
        self.outputs = outputs
        self.weights: tuple[Tensor, ...] = ()
        self.change: dict[str, Any] = {}
        self._memory = [(t.data_ptr(), t.numel(), t.itemsize) for t in outputs]
        self._identity = [self._facts(t) for t in outputs]

    @staticmethod
    def _facts(tensor: Tensor) -> tuple[Any, ...]:
        return (
            _type(tensor),
            tensor.data_ptr(),
            tuple(tensor.shape),
            tensor.stride(),
            tensor.dtype,
            tensor.device,
        )

    def fill(self, variant: Sequence[Tensor], change: dict[str, Any], rolled: int | None) -> None:
        """Write varied inputs and poison the outputs."""
        self.change = change
        for index, (target, source) in enumerate(zip(self.inputs, variant, strict=False)):
            _write(target, source, index, change, rolled)
        for output in self.outputs:
            # What a call does not write can then never be right by what an earlier one left.
            _fill(output, float("nan"))

    def arguments(self) -> tuple[Tensor, ...]:
        """Return the arguments of ``run``."""
        return (*self.inputs, *self.weights, *self.outputs)

    def check_outputs(self) -> None:
        """Refuse a call that exchanged or resized its output tensors.

        Raises:
            CaseError: It did.
        """
        for before, tensor in zip(self._identity, self.outputs, strict=True):
            if _type(tensor) is not before[0] or self._facts(tensor) != before:
                raise CaseError("incorrect", "an output tensor was resized or replaced")

    def choose(self) -> tuple[int, int]:
        """Draw an output and one of its elements; return their numbers."""
        number = _random.randrange(len(self._memory))
        return number, _random.randrange(self._memory[number][1])

    def read(self, place: tuple[int, int]) -> bytes:
        """Return an element of an output in the host's memory as it is now, past all of torch's operators."""
        number, element = place
        address, _, size = self._memory[number]
        # By address: a tensor subclass or a patched operator could answer something else.
        return _string_at(address + element * size, size)

    def mapped(self, place: tuple[int, int]) -> ctypes.Array[ctypes.c_char]:
        """Return the memory of an element of an output in the host's memory; its bytes are those of now."""
        number, element = place
        address, _, size = self._memory[number]
        return (_char * size).from_address(address + element * size)

    def probe(self) -> tuple[tuple[int, int], bytes]:
        """Draw an element and return its place with what it holds now."""
        place = self.choose()
        return place, self.read(place)

    def copy_outputs(self, targets: Sequence[int]) -> None:
        """Copy the outputs' memory to addresses of the host, past all of torch's operators."""
        for (address, count, size), target in zip(self._memory, targets, strict=True):
            _memmove(target, address, count * size)

    def changed_since(self, probe: tuple[tuple[int, int], bytes]) -> bool:
        """Tell whether an element is not what it was when it was probed."""
        place, before = probe
        return self.read(place) != before

    def changed_input(self, variants: Sequence[Sequence[Tensor]], rolled: int | None) -> int | None:
        """Return the number of an input that the call changed, or None."""
        for index, (target, source) in enumerate(
            zip(self.inputs, variants[self.change["variant"]], strict=False)
        ):
            right = _empty_like(target)
            # Made again from its draw, so that no working set needs a second copy of its inputs.
            _write(right, source, index, self.change, rolled)
            if not _equal(plain(target), plain(right)):
                return index
        return None


def drawn_anew(variant: Sequence[Tensor], generator: torch.Generator) -> list[Tensor]:
    """Return inputs that share nothing with a draw but their shapes and spread; indices and single numbers stay."""
    drawn = []
    for source in variant:
        target = _empty_like(source)
        if source.dtype == _float8:
            wide = _to(source, _single)
            # The draw's own spread, so that new inputs are as hard to compute with as known ones.
            _copy(target, _normal(wide, 0.0, float(_std(wide)), generator=generator))
        elif source.is_floating_point() and source.numel() > 1:
            _normal(target, 0.0, float(_std(source)), generator=generator)
        else:
            _copy(target, source)
        drawn.append(target)
    return drawn


def _write(target: Tensor, source: Tensor, index: int, change: dict[str, Any], rolled: int | None) -> None:
    factor = change["factors"][index]
    target, source = plain(target), plain(source)
    if index == rolled and change["roll"]:
        _copy(target, _roll(source, change["roll"], 0))
    elif factor != 1.0:
        # Exact, being a power of two.
        _mul(source, factor, out=target)
    else:
        _copy(target, source)
