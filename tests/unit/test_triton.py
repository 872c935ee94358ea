"""The Triton kernels of shipped techniques in Triton's interpreter, which needs no accelerator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from interpreted_kernels import Ask, interpreted
from representatives import first_of_each

SHAPE = {"m": 50, "n": 70, "k": 130}
TILES = {"tile_m": 32, "tile_n": 32, "tile_k": 32}
DECODE = {"batch": 3, "context": 150, "heads": 6, "kv_heads": 2, "head_dim": 32}
ONE_KEY = {"batch": 1, "context": 1, "heads": 2, "kv_heads": 1, "head_dim": 8}
LONG = {"batch": 2, "context": 321, "heads": 4, "kv_heads": 1, "head_dim": 24}
LOW = {"m": 5, "n": 33, "k": 96, "group": 32}
CASES = [
    ("fused_add_rmsnorm", "FusedAddRmsNorm", "add_rmsnorm", "float32", {}, {}),
    ("fused_add_rmsnorm", "FusedAddRmsNorm", "add_rmsnorm", "bfloat16", {}, {}),
    ("fused_add_rmsnorm", "FusedAddRmsNorm", "add_rmsnorm", "float32", {"tokens": 33, "hidden": 257}, {}),
    ("unsplit", "Unsplit", "attention_decode", "float32", DECODE, {}),
    ("unsplit", "Unsplit", "attention_decode", "bfloat16", LONG, {}),
    ("unsplit", "Unsplit", "attention_decode", "float32", ONE_KEY, {}),
    ("flash_decoding", "FlashDecoding", "attention_decode", "float32", DECODE, {"splits": 3}),
    ("flash_decoding", "FlashDecoding", "attention_decode", "float32", DECODE, {"tile": 16}),
    ("flash_decoding", "FlashDecoding", "attention_decode", "bfloat16", LONG, {"tile": 16, "splits": 70}),
    ("flash_decoding", "FlashDecoding", "attention_decode", "float16", LONG, {"tile": 64, "tuned": True}),
    ("lean_attention", "LeanAttention", "attention_decode", "float32", DECODE, {"tile": 32, "workers": 5}),
    ("lean_attention", "LeanAttention", "attention_decode", "float16", DECODE, {"tile": 32, "workers": 3}),
    ("lean_attention", "LeanAttention", "attention_decode", "bfloat16", LONG, {"tile": 16, "workers": 40}),
    ("lean_attention", "LeanAttention", "attention_decode", "float32", ONE_KEY, {"workers": 5}),
    ("split_k", "SplitK", "gemm", "float32", SHAPE, {"splits": 3} | TILES),
    ("stream_k", "StreamK", "gemm", "float32", SHAPE, {"workers": 5, "sharing_cost": 0} | TILES),
    ("stream_k", "StreamK", "gemm", "float64", SHAPE, {"workers": 5} | TILES),
    ("persistent", "Persistent", "gemm", "float32", SHAPE, {"workers": 3} | TILES),
    *(("tilus", "Tilus", "dequant_gemm", "float32", {"bits": bits}, {}) for bits in range(1, 9)),
    *(("tilus", "Tilus", "dequant_gemm", "bfloat16", LOW | {"bits": bits}, {}) for bits in range(1, 9)),
    ("tilus", "Tilus", "dequant_gemm", "bfloat16", {"m": 1, "n": 17, "k": 1024, "group": 64, "bits": 7}, {}),
    ("tilus", "Tilus", "dequant_gemm", "float32", {"m": 2, "n": 5, "k": 40, "group": 20, "bits": 3}, {}),
    ("tilus", "Tilus", "dequant_gemm", "float16", {"m": 17, "n": 40, "k": 1024, "group": 128, "bits": 6}, {}),
]  # fmt: skip


@pytest.fixture(scope="module")
def ask() -> Iterator[Ask]:
    with interpreted() as answer:
        yield answer


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("case",),
    first_of_each(((case,) for case in CASES), lambda case: (case[0][0], case[0][3])),
    ids=["-".join(map(str, (c[0], c[3], *c[4].values(), *c[5].values()))) for c in CASES],
)
@pytest.mark.one_in(3)
def test_a_triton_kernel_is_right_in_the_interpreter(case: tuple[Any, ...], ask: Ask) -> None:
    *technique, options = case
    assert ask((*technique, {"backend": "triton"} | options)) == "right"


def test_a_check_that_fails_is_told_and_the_next_one_is_made(ask: Ask) -> None:
    assert "TypeError" in ask((*CASES[0][:5], {"backend": "triton", "nothing": 1}))
    assert "1 of 680 elements of y are outside the bound" in ask(
        (*CASES[-1][:5], {"backend": "triton"}, "spoilt")
    )
    assert ask((*CASES[0][:5], {"backend": "triton"})) == "right"
