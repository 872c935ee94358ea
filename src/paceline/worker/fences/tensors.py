"""What of PyTorch a technique must leave as it found it: functions, the kernels behind operators, settings.

Only processes that compute with tensors import it (``Guard``).
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

FUNCTIONS: tuple[tuple[Any, str], ...] = (
    (torch, "allclose"),
    (torch, "equal"),
    (torch, "isclose"),
    (torch, "isfinite"),
    (torch, "empty"),
    (torch, "empty_like"),
    (torch, "zeros"),
    (torch, "mul"),
    (torch, "frombuffer"),
    (torch, "Event"),
    (torch.cuda, "Event"),
    (torch.Tensor, "copy_"),
    (torch.Tensor, "clone"),
    (torch.Tensor, "fill_"),
    (torch.Tensor, "to"),
    (torch.Tensor, "view"),
    (torch.Tensor, "data_ptr"),
    (torch.Tensor, "__eq__"),
    (torch.accelerator, "synchronize"),
)
"""Functions that timing or the oracle rest on."""
OPERATORS: tuple[str, ...] = (
    "aten::copy_",
    "aten::equal",
    "aten::fill_.Scalar",
    "aten::mul.out",
    "aten::roll",
)
"""Operators by which inputs are varied, outputs poisoned and read: a kernel put behind one computes untimed."""

_function_modes = torch._C._len_torch_function_stack
_dispatch_modes = torch._C._len_torch_dispatch_stack
table = torch._C._dispatch_dump_table
"""Returns the kernels behind an operator, as text."""


def settings() -> dict[str, Any]:
    """Return PyTorch's settings of this process that one technique could leave to another."""
    tiny = torch.finfo(torch.float64).smallest_normal
    return {
        "torch.get_num_threads": torch.get_num_threads(),
        "torch.get_default_dtype": torch.get_default_dtype(),
        "torch.is_grad_enabled": torch.is_grad_enabled(),
        "torch.is_inference_mode_enabled": torch.is_inference_mode_enabled(),
        "torch.are_deterministic_algorithms_enabled": torch.are_deterministic_algorithms_enabled(),
        "torch.get_float32_matmul_precision": torch.get_float32_matmul_precision(),
        "torch.set_flush_denormal": tiny / 2 == 0.0,
        "torch function modes": _function_modes(),
        "torch dispatch modes": _dispatch_modes(),
    }


def entry_points() -> list[tuple[Any, str]]:
    """Return the functions of ``torch.distributed`` that are the harness's alone: each its owner and its name."""
    names = [
        "all_reduce",
        "all_gather",
        "all_gather_into_tensor",
        "all_gather_object",
        "all_to_all",
        "all_to_all_single",
        "barrier",
        "batch_isend_irecv",
        "broadcast",
        "broadcast_object_list",
        "gather",
        "gather_object",
        "irecv",
        "isend",
        "new_group",
        "recv",
        "reduce",
        "reduce_scatter",
        "reduce_scatter_tensor",
        "scatter",
        "scatter_object_list",
        "send",
        "init_process_group",
        "TCPStore",
        "FileStore",
    ]
    return [(dist, name) for name in names if hasattr(dist, name)]
