"""Kernels of libraries: Liger's in Triton's interpreter; the others' by stand-ins that take what their documents say.

None of them runs without an accelerator. A stand-in computes with PyTorch what the library's function is documented to
return, and refuses what the library refuses, so what is tested here is how the techniques call it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import pairwise
from types import ModuleType
from typing import Any

import pytest
import torch
from interpreted_kernels import Ask, interpreted
from paceline.baselines.kernels.flash_attention import FlashAttention
from paceline.baselines.kernels.flashinfer_decode import FlashInferDecode
from torch import Tensor
from torch.nn import functional

from paceline.families.kernels.api.problem import TORCH_DTYPES, Problem, UnsupportedError
from paceline.families.kernels.core.oracle import judge
from paceline.families.kernels.ops.attention_decode.run import OPERATOR as DECODE
from paceline.families.kernels.ops.attention_prefill.run import OPERATOR as PREFILL
from paceline.families.kernels.spec import FAMILY

WITHOUT_A_DEVICES_LIBRARY = """
import liger_kernel.ops.fused_add_rms_norm as norm

def reciprocal_root(value):
    # A function of the device's own library, which the interpreter does not have.
    return tl.tensor(interpreter.TensorHandle(1 / numpy.sqrt(value.handle.data), value.dtype), value.dtype)

norm.rsqrt = reciprocal_root
"""
HEAD = {"tokens": 40, "hidden": 24, "vocab": 300}
LIGER = [
    ("add_rmsnorm", "float32", {}),
    ("add_rmsnorm", "float32", {"tokens": 33, "hidden": 257}),
    ("add_rmsnorm", "float16", {}),
    ("cross_entropy", "float32", {"tokens": 7, "vocab": 1000}),
    ("lm_head_loss", "float32", HEAD),
]


@pytest.fixture(scope="module")
def ask() -> Iterator[Ask]:
    with interpreted(WITHOUT_A_DEVICES_LIBRARY) as answer:
        yield answer


interpretable = pytest.mark.skipif(
    find_spec("liger_kernel") is None,
    reason="liger-kernel is not installed: make dev, or pip install liger-kernel",
)


@interpretable
@pytest.mark.full
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("operation", "dtype", "point"), LIGER)
def test_ligers_kernel_is_right_in_the_interpreter(
    operation: str, dtype: str, point: dict[str, int], ask: Ask
) -> None:
    assert ask(("liger", "Liger", operation, dtype, point, {})) == "right"


@interpretable
@pytest.mark.full
def test_ligers_loss_of_16_bits_is_not_tried(ask: Ask) -> None:
    assert "supports float32" in ask(("liger", "Liger", "cross_entropy", "bfloat16", {}, {}))


def flash_attn_func(q: Tensor, k: Tensor, v: Tensor, *, causal: bool = False) -> Tensor:
    """Take (B, T, H, D) and key heads that divide the heads, as the library does; return a new tensor."""
    assert q.dtype in (torch.float16, torch.bfloat16) and {t.stride(-1) for t in (q, k, v)} == {1}
    heads = (t.transpose(1, 2).float() for t in (q, k, v))
    out = functional.scaled_dot_product_attention(*heads, is_causal=causal, enable_gqa=True)
    return out.to(q.dtype).transpose(1, 2).contiguous()


class BatchDecodeWithPagedKVCacheWrapper:
    """Attends page by page to what was planned."""

    def __init__(self, workspace: Tensor, kv_layout: str, *, use_tensor_cores: bool = False) -> None:
        assert kv_layout == "NHD" and workspace.dtype == torch.uint8 and not workspace.any()
        self.use_tensor_cores = use_tensor_cores

    def plan(
        self,
        indptr: Tensor,
        indices: Tensor,
        last_page_len: Tensor,
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim: int,
        page_size: int,
        *,
        q_data_type: torch.dtype,
        kv_data_type: torch.dtype,
    ) -> None:
        """Keep what is planned with; all index tensors are of 32 bits."""
        assert {t.dtype for t in (indptr, indices, last_page_len)} == {torch.int32}
        assert len(last_page_len) == len(indptr) - 1 and int(last_page_len.max()) <= page_size
        self.pages = [indices[begin:end].long() for begin, end in pairwise(indptr.tolist())]
        self.last, self.size, self.dtype = last_page_len.tolist(), page_size, q_data_type
        self.shape = num_qo_heads, num_kv_heads, head_dim

    def run(self, q: Tensor, paged_kv_cache: tuple[Tensor, Tensor], *, out: Tensor) -> Tensor:
        """Attend, q and out (B, H, D), caches (pages, page size, key heads, D)."""
        assert q.dtype == self.dtype and q.shape[1:] == (self.shape[0], self.shape[2])
        for i, (pages, last) in enumerate(zip(self.pages, self.last, strict=True)):
            tokens = (len(pages) - 1) * self.size + last
            k, v = (c[pages].flatten(0, 1)[:tokens].transpose(0, 1).float() for c in paged_kv_cache)
            attended = functional.scaled_dot_product_attention(q[i][:, None].float(), k, v, enable_gqa=True)
            out[i] = attended[:, 0].to(out.dtype)
        return out


@pytest.fixture(autouse=True)
def libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, entry in (("flash_attn", flash_attn_func), ("flashinfer", BatchDecodeWithPagedKVCacheWrapper)):
        module = ModuleType(name)
        setattr(module, entry.__name__, entry)
        monkeypatch.setitem(sys.modules, name, module)


def problem_of(operation: str, dtype: str, point: dict[str, Any]) -> Problem:
    params = (
        {p.name: p.default for p in FAMILY.parameters_for(operation)}
        | point
        | {"op": operation, "dtype": dtype}
    )
    return Problem(operation=operation, dtype=TORCH_DTYPES[dtype], device=torch.device("cpu"), params=params)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize(
    ("technique", "operator", "point"),
    [
        (FlashAttention, PREFILL, {"batch": 2, "tokens": 37, "heads": 6, "kv_heads": 2, "head_dim": 16}),
        (FlashInferDecode, DECODE, {"batch": 3, "context": 90, "heads": 6, "kv_heads": 2, "head_dim": 16}),
        (FlashInferDecode, DECODE, {"batch": 1, "context": 33, "heads": 8, "kv_heads": 2, "head_dim": 16}),
    ],
)
def test_a_library_is_given_what_it_documents(technique: Any, operator: Any, point: Any, dtype: str) -> None:
    problem = problem_of(operator.name, dtype, point)
    draw = operator.draw(problem.params, problem.dtype, seed=5)
    _, outputs = operator.tensors(problem.params, problem.dtype)
    results = [torch.full(s.shape, float("nan"), dtype=s.dtype) for s in outputs]
    instance = technique(problem)
    instance.run(*draw.inputs, *results)
    judged = judge(draw.expected, results, [1.0] * len(results), [s.name for s in outputs])
    assert judged.passed, judged.reason
    if technique is FlashInferDecode:
        assert instance.wrapper.use_tensor_cores == (point["heads"] >= 4 * point["kv_heads"])


def test_a_head_that_flash_attn_has_no_kernel_for_is_unsupported() -> None:
    point = {"batch": 1, "tokens": 8, "heads": 1, "kv_heads": 1, "head_dim": 264}
    with pytest.raises(UnsupportedError, match="at most 256"):
        FlashAttention(problem_of("attention_prefill", "float16", point))
