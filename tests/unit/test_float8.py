"""Float8 on devices that have the other type: the same products, from factors in float8_e4m3fn."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from kernel_operators import ARITHMETIC, POINTS

from paceline.families.datasheets import datasheet_of
from paceline.families.kernels.api import float8
from paceline.families.kernels.core.ceilings import describe
from paceline.families.kernels.spec import FAMILY

CPU = torch.device("cpu")


def device_with(has: torch.dtype | None) -> Any:
    """Return ``torch._scaled_mm`` of a device that multiplies one type alone."""

    def scaled_mm(
        a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor, **options: Any
    ) -> None:
        if a.dtype != has or b.dtype != has:
            raise RuntimeError(f"only {has} is supported\nand more")
        # In float64: no rounding of a sum hides what the factors were.
        options["out"].copy_((a.double() @ b.double()) * scale_a.double() * scale_b.double())

    return scaled_mm


@pytest.fixture(autouse=True)
def asked_anew() -> Iterator[None]:
    """Forget which type the device has."""
    float8._native.cache_clear()
    yield
    float8._native.cache_clear()


@pytest.mark.parametrize("has", [float8.DTYPE, float8.FNUZ])
def test_every_value_is_multiplied_as_it_is(has: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "_scaled_mm", device_with(has))
    assert float8.native(CPU) == has
    assert float8.missing(CPU) is None
    every = torch.arange(256, dtype=torch.uint8)
    # All but the two that are no number; −0 is one of the rest.
    values = every[(every & 0x7F) != 0x7F].view(float8.DTYPE)
    factor = values.view(torch.uint8).repeat_interleave(16).view(-1, 16).view(float8.DTYPE)
    other = torch.eye(16).to(float8.DTYPE)
    out = torch.empty(len(values), 16, dtype=torch.float32)
    float8.product(factor, other, torch.tensor(0.5), torch.tensor(3.0), out)
    assert torch.equal(out, 1.5 * factor.float())


def test_a_device_of_the_other_type_takes_it_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "_scaled_mm", device_with(float8.FNUZ))
    a, b = torch.full((16, 16), 2.0).to(float8.FNUZ), torch.eye(16).to(float8.FNUZ)
    out = torch.empty(16, 16, dtype=torch.bfloat16)
    float8.product(a, b, torch.ones(()), torch.ones(()), out)
    assert torch.equal(out.float(), torch.full((16, 16), 2.0))


def test_a_device_without_either_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "_scaled_mm", device_with(None))
    assert float8.native(CPU) is None
    assert float8.missing(CPU) == (
        "needs a device that multiplies float8_e4m3fn; torch says of this one: only None is supported"
    )


def test_products_on_cdna3_are_held_against_the_rate_of_its_own_type() -> None:
    defaults = {p.name: p.default for p in FAMILY.parameters_for("scaled_gemm")}
    point = {**defaults, **POINTS["scaled_gemm"], "op": "scaled_gemm", "dtype": "bfloat16"}
    point |= {"m": 8192, "n": 8192, "k": 8192}
    sheet = datasheet_of("AMD Instinct MI300X", kind="cuda")
    ceiling = {"flops_per_s": 1e15, "bytes_per_s": 4e12, "datasheet": sheet}
    found = describe(ARITHMETIC["scaled_gemm"], point, ceiling, 1e-3)
    assert found["datasheet"]["flops_per_s"] == 2614.9e12
