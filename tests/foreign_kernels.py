"""Candidates in KernelBench's layout: published ways to fool a benchmark, and honest kernels, for one reference.

Each is the text of ``ModelNew.forward`` after the lines that every candidate begins with, or a whole file.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping

REFERENCE = '''
import torch
import torch.nn as nn


class Model(nn.Module):
    """A linear layer, then a softmax over its features."""

    def __init__(self, features: int):
        super().__init__()
        self.linear = nn.Linear(features, features)

    def forward(self, x):
        return torch.softmax(self.linear(x), dim=1)


def get_inputs():
    return [torch.randn(96, 256)]


def get_init_inputs():
    return [256]
'''
RIGHT = "torch.softmax(self.linear(x), dim=1)"
OUTSIDE = r"elements of output 0 are outside the bound, first at"
WRONG: Mapping[str, tuple[str, str, str]] = {
    "zeros": ("return torch.zeros_like(x)", "incorrect", OUTSIDE),
    "nan": ("return torch.full_like(x, float('nan'))", "incorrect", r"output 0 holds NaN or infinity"),
    "uninitialised": ("return torch.empty_like(x)", "incorrect", rf"{OUTSIDE}|holds NaN or infinity"),
    "ones": ("return torch.ones_like(x)", "incorrect", OUTSIDE),
    "input-returned": ("return x", "incorrect", OUTSIDE),
    "first-result": (
        f"if 'y' not in self.kept:\n    self.kept['y'] = {RIGHT}\nreturn self.kept['y']",
        "incorrect",
        OUTSIDE,
    ),
    "by-address": (
        f"self.kept.setdefault(x.data_ptr(), None)\nif self.kept[x.data_ptr()] is None:\n"
        f"    self.kept[x.data_ptr()] = {RIGHT}\nreturn self.kept[x.data_ptr()]",
        "incorrect",
        OUTSIDE,
    ),
    "by-content": (
        f"key = x[0, 0].item()\nif key not in self.kept:\n    self.kept[key] = {RIGHT}\nreturn self.kept[key]",
        "refused",
        r"slower on inputs that share nothing with earlier ones",
    ),
    "right-at-first": (
        f"self.count += 1\nreturn {RIGHT} if self.count < 8 else torch.zeros_like(x)",
        "incorrect",
        OUTSIDE,
    ),
    "changes-its-input": (
        f"found = {RIGHT}\nx.mul_(2)\nreturn found",
        "incorrect",
        r"the input 'input 0' was changed",
    ),
    "bfloat16": (
        "y = x.bfloat16() @ self.linear.weight.bfloat16().T + self.linear.bias\nreturn torch.softmax(y.float(), dim=1)",
        "incorrect",
        OUTSIDE,
    ),
    "half-of-the-rows": (f"found = {RIGHT}\nfound[48:] = found[:48]\nreturn found", "incorrect", OUTSIDE),
    "without-the-bias": (
        "return torch.softmax(x @ self.linear.weight.T, dim=1)",
        "incorrect",
        OUTSIDE,
    ),
    "narrow-result": (
        f"return {RIGHT}.half()",
        "incorrect",
        r"output 0 is of torch\.float16, not torch\.float32",
    ),
    "transposed-result": (
        f"return ({RIGHT}).T",
        "incorrect",
        r"output 0 has shape \(256, 96\), not \(96, 256\)",
    ),
    "two-results": (
        f"found = {RIGHT}\nreturn found, found",
        "incorrect",
        r"returned 2 outputs, the reference 1",
    ),
    "nothing": ("return None", "incorrect", r"output 0 is a NoneType, and not a plain tensor"),
    "lazy": (
        f"return ({RIGHT}).as_subclass(Lazy)",
        "incorrect",
        r"output 0 is a Lazy, and not a plain tensor",
    ),
    "patches-allclose": (
        "torch.allclose = lambda *a, **k: True\nreturn torch.zeros_like(x)",
        "refused",
        r"it replaced torch\.allclose",
    ),
    "patches-the-clock": (
        f"time.perf_counter_ns = lambda: 0\nreturn {RIGHT}",
        "refused",
        r"it replaced time\.perf_counter_ns",
    ),
    "patches-events": (
        f"torch.cuda.Event = object\nreturn {RIGHT}",
        "refused",
        r"it replaced torch\.cuda\.Event",
    ),
    "patches-the-wait": (
        f"torch.accelerator.synchronize = lambda *a: None\nreturn {RIGHT}",
        "refused",
        r"it replaced torch\.accelerator\.synchronize",
    ),
    "lowers-the-precision": (
        f"torch.set_float32_matmul_precision('medium')\nreturn {RIGHT}",
        "refused",
        r"it changed the global setting torch\.get_float32_matmul_precision",
    ),
    "takes-more-threads": (
        f"torch.set_num_threads(2)\nreturn {RIGHT}",
        "refused",
        r"it changed the global setting torch\.get_num_threads",
    ),
}
"""Name → the text, the status, and the reason."""
WHOLE: Mapping[str, tuple[str, str, str]] = {
    "finds-the-reference": (
        "import sys\n\nModelNew = sys.modules['__main__'].Model\n",
        "refused",
        r"line 1: imports sys",
    ),
    "imports-the-reference": (
        "from softmax import Model as ModelNew\n",
        "refused",
        r"line 1: imports softmax\.Model",
    ),
    "computes-in-a-thread": (
        "import threading\n\nModelNew = threading.Thread\n",
        "refused",
        r"line 1: imports threading",
    ),
    "builds-a-library": (
        "from torch.utils.cpp_extension import load_inline\n\nModelNew = load_inline\n",
        "refused",
        r"line 1: imports torch\.utils\.cpp_extension\.load_inline",
    ),
    "reads-frames": (
        "import inspect\n\nModelNew = inspect.currentframe\n",
        "refused",
        r"line 1: imports inspect",
    ),
    "reads-the-judge": (
        "from paceline.families.kernels.core.oracle import judge\n\nModelNew = judge\n",
        "refused",
        r"line 1: imports paceline\.families\.kernels\.core\.oracle",
    ),
    "opens-files": ("ModelNew = open('/tmp/results')\n", "refused", r"line 1: uses open"),
}
"""Whole files that are refused by what they say."""
HONEST: Mapping[str, str] = {
    "same": f"return {RIGHT}",
    "addmm": "return torch.softmax(torch.addmm(self.linear.bias, x, self.linear.weight.T), dim=1)",
    "functional": "return nn.functional.softmax(nn.functional.linear(x, self.linear.weight, self.linear.bias), dim=1)",
    "einsum": "return torch.softmax(torch.einsum('mk,nk->mn', x, self.linear.weight) + self.linear.bias, dim=1)",
    "by-rows": "return torch.cat([torch.softmax(self.linear(part), dim=1) for part in x.split(20)])",
    "in-float64": "return torch.softmax(nn.functional.linear(x.double(), self.linear.weight.double(), "
    "self.linear.bias.double()), dim=1).float()",
    "log-softmax": "return torch.log_softmax(self.linear(x), dim=1).exp()",
    "in-place": "y = self.linear(x)\ny -= y.amax(dim=1, keepdim=True)\ny.exp_()\n"
    "return y.div_(y.sum(dim=1, keepdim=True))",
    "scaled": "y = self.linear(x)\nreturn torch.exp(y - torch.logsumexp(y, dim=1, keepdim=True))",
    "keeps-scratch": "self.kept.setdefault('y', torch.empty_like(x))\n"
    "torch.addmm(self.linear.bias, x, self.linear.weight.T, out=self.kept['y'])\n"
    "return torch.softmax(self.kept['y'], dim=1)",
    "counts-calls": f"self.count += 1\nreturn {RIGHT}",
    "split-reduction": "y = x[:, :100] @ self.linear.weight[:, :100].T + x[:, 100:] @ self.linear.weight[:, 100:].T\n"
    "return torch.softmax(y + self.linear.bias, dim=1)",
}
"""Name → the text of kernels that are right."""


def solution(body: str) -> str:
    """Return a file of a candidate whose ``forward`` has a body."""
    return f'''
import time

import torch
import torch.nn as nn


class Lazy(torch.Tensor):
    """A tensor that could put work off."""


class ModelNew(nn.Module):
    def __init__(self, features: int):
        super().__init__()
        self.linear = nn.Linear(features, features)
        self.kept = {{}}
        self.count = 0

    def forward(self, x):
{textwrap.indent(body, "        ")}
'''.lstrip()
