"""The kernel of scheduled products: right in Triton's interpreter in every variant, and built for devices elsewhere.

The interpreter has to be chosen before Triton is imported, so what runs in it runs in a process of its own.
"""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from representatives import first_of_each

from paceline.families.kernels.api.schedules import Span
from paceline.families.kernels.api.tiles import GemmTile, gemm_tile

INTERPRETED = """
import builtins
import itertools
import sys
import numpy
import torch
import triton.language as tl
import triton.runtime.interpreter as interpreter

class Anything(type):
    def __instancecheck__(cls, value):
        return isinstance(value, builtins.int)

class Int(int, metaclass=Anything):
    # Triton 3.6's interpreter converts arrays of one element, which numpy 2.4 refuses.
    def __new__(cls, value=0):
        return builtins.int(value.reshape(()) if isinstance(value, numpy.ndarray) else value)

interpreter.int = Int
dot = interpreter.InterpreterBuilder.create_dot

def whole(value):
    # The interpreter keeps bfloat16 as integers, and would multiply those.
    if value.dtype.scalar != tl.bfloat16:
        return value
    return interpreter.TensorHandle((value.data.astype(numpy.uint32) << 16).view(numpy.float32), tl.float32)

interpreter.InterpreterBuilder.create_dot = lambda self, a, b, *rest: dot(self, whole(a), whole(b), *rest)

from paceline.families.kernels.api.schedules import each_split, fixed_split, stream_k_then_whole
from paceline.families.kernels.api.tiles import GemmTile
from paceline.baselines.kernels.triton_gemm import ScheduledGemm

every = int(sys.argv[1])
KINDS = [(loads == "descriptors", getattr(torch, name)) for loads, name in (k.split("-") for k in sys.argv[2:])]
SCHEDULES = {
    "stream-k": lambda tiles: stream_k_then_whole(tiles, 5),
    "many workers": lambda tiles: stream_k_then_whole(tiles, 40),
    "split-k": lambda tiles: each_split(tiles, 3),
    "persistent": lambda tiles: fixed_split(tiles, 3, 1),
}
# Of whole tiles; in aligned rows that fit no tile; in rows that no descriptor can name; of fewer rows than a tile.
SIZES = [(64, 96, 64), (33, 72, 136), (33, 71, 133), (1, 40, 130), (1, 1, 1)]
products = itertools.product(KINDS, SIZES, SCHEDULES.items())
for (descriptors, dtype), (m, n, k), (name, schedule) in itertools.islice(products, 0, None, every):
    halves = m == 33 and name != "split-k"
    tile = GemmTile(m=32, n=32, k=32, group=2, halves=halves)
    count, steps = -(-m // tile.m) * -(-n // tile.n), -(-k // tile.k)
    dealt = schedule([steps] * count)
    gemm = ScheduledGemm(dealt, (m, n, k), tile, dtype, torch.device("cpu"), descriptors=descriptors)
    results = []
    for seed in (1, 1):
        torch.manual_seed(seed)
        a, b = (torch.randn(*shape).to(dtype) for shape in ((m, k), (k, n)))
        results.append(torch.full((m, n), float("nan"), dtype=dtype))
        gemm.run(a, b, results[-1])
        wanted = a.double() @ b.double()
        # Sums are in float32 at least: what is left is their rounding, and that of the output.
        rounding = 1e-13 if dtype == torch.float64 else 1e-5
        bound = rounding * (a.double().abs() @ b.double().abs()) + torch.finfo(dtype).eps * wanted.abs()
        assert ((results[-1].double() - wanted).abs() <= bound).all(), (m, n, k, name)
    assert torch.equal(*results), "a call changed what the next one computes"
print("right")
"""


def interpreted(every: int, *kinds: str) -> None:
    """Compute every n-th product of sizes and schedules in Triton's interpreter."""
    ended = subprocess.run(
        [sys.executable, "-c", INTERPRETED, str(every), *kinds],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-2000:]
    assert ended.stdout == "right\n"


def test_some_scheduled_products_are_right_at_odd_sizes_and_from_call_to_call() -> None:
    """Both ways of loading, and of adding up; every size and every schedule is among them."""
    interpreted(3, "pointers-float32", "descriptors-float16")


@pytest.mark.full
@pytest.mark.parametrize("loads", ["pointers", "descriptors"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_a_scheduled_product_is_right_at_odd_sizes_and_from_call_to_call(loads: str, dtype: str) -> None:
    interpreted(1, f"{loads}-{dtype}")


HOPPER_BYTES, AMPERE_BYTES, GRAPHICS_BYTES, AMD_BYTES = 232448, 166912, 101376, 65536
DEVICES = {
    "hopper": (("cuda", 90, 32), HOPPER_BYTES),
    "a100": (("cuda", 80, 32), AMPERE_BYTES),
    "rtx": (("cuda", 89, 32), GRAPHICS_BYTES),
    "mi300": (("hip", "gfx942", 64), AMD_BYTES),
}
SIZES = [(8192, 8192, 8192), (257, 511, 1029), (1, 14336, 4096), (1, 1, 1)]


def chosen(device: str, sizes: tuple[int, int, int], itemsize: int, *, described: bool = True) -> GemmTile:
    (backend, _, _), limit = DEVICES[device]
    return gemm_tile(
        sizes,
        (0, 0, 0),
        workers=132,
        itemsize=itemsize,
        shared_bytes=limit,
        deepest=128 if described else 64,
        through_registers=backend == "hip",
    )


def built(device: str, sizes: tuple[int, int, int], dtype: str, *, described: bool) -> Any:
    """Compile the kernel for a device as its launch at these sizes would."""
    triton = pytest.importorskip("triton")
    compiler = importlib.import_module("triton.compiler")
    target = importlib.import_module("triton.backends.compiler").GPUTarget(*DEVICES[device][0])
    if target.backend not in triton.backends.backends and "amd" not in triton.backends.backends:
        pytest.skip("this Triton cannot build for the device")
    gemm = importlib.import_module("paceline.baselines.kernels.triton_gemm")
    tile, (m, n, k) = chosen(device, sizes, int(dtype[2:]) // 8, described=described), sizes
    blocks = {
        "a": (tile.m, tile.k),
        "b": (tile.k, tile.n),
        "c": (tile.m, tile.n // 2 if tile.halves else tile.n),
    }
    signature = {
        name: f"tensordesc<{dtype}[{rows}, {columns}]>" if described else f"*{dtype}"
        for name, (rows, columns) in blocks.items()
    }
    signature |= {"slots": "*fp64" if dtype == "fp64" else "*fp32"}
    signature |= dict.fromkeys(("arrived", "part_begins", "parts", "whole_begins", "wholes"), "*i32")
    numbers = {"M": m, "N": n, "K": k}
    # As a launch does: a one becomes a constant, and a multiple of sixteen is known as such.
    constants: dict[str, Any] = {name: 1 for name, value in numbers.items() if value == 1}
    signature |= {name: "constexpr" if value == 1 else "i32" for name, value in numbers.items()}
    signature |= {"steps": "i32", "num_columns": "i32"}
    aligned = [
        place
        for place, (name, kind) in enumerate(signature.items())
        if kind.startswith("*") or (kind == "i32" and numbers.get(name, 1) % 16 == 0)
    ]
    flags = {
        "TILE_M": tile.m, "TILE_N": tile.n, "TILE_K": tile.k, "DESCRIBED": described, "HALVES": tile.halves,
        "EVEN_N": n % tile.n == 0, "EVEN_K": k % tile.k == 0, "PARTS": True, "WHOLES": True, "PART_FIELDS": gemm.FIELDS,
    }  # fmt: skip
    source = compiler.ASTSource(
        fn=gemm._products,
        signature=signature | dict.fromkeys(flags, "constexpr"),
        constexprs=constants | flags,
        attrs={(place,): [["tt.divisibility", 16]] for place in aligned},
    )
    return compiler.compile(
        source, target=target, options={"num_warps": tile.warps, "num_stages": tile.stages}
    )


BUILDS = [
    *(("hopper", dtype, sizes) for dtype in ("fp16", "fp32") for sizes in SIZES),
    *((d, dtype, sizes) for d in ("a100", "rtx", "mi300") for dtype in ("fp16", "fp32") for sizes in SIZES[:2]),
    *((device, "fp64", SIZES[1]) for device in DEVICES),
]  # fmt: skip


@pytest.mark.parametrize(("device", "dtype", "sizes"), first_of_each(BUILDS, lambda case: case[:2]), ids=str)
@pytest.mark.one_in(3)
def test_the_kernel_is_built_and_fits_in_shared_memory(
    device: str, dtype: str, sizes: tuple[int, int, int]
) -> None:
    kernel = built(device, sizes, dtype, described=False)
    assert kernel.metadata.shared <= DEVICES[device][1]


@pytest.mark.parametrize(
    ("sizes",), first_of_each(((sizes,) for sizes in SIZES), lambda case: case[0][0] > 1), ids=str
)
def test_hopper_loads_through_descriptors_while_it_multiplies(sizes: tuple[int, int, int]) -> None:
    kernel = built("hopper", sizes, "fp16", described=True)
    assert kernel.metadata.shared <= HOPPER_BYTES
    assert "cp.async.bulk.tensor" in kernel.asm["ptx"]
    if sizes[0] > 1:
        # One product stays in flight while the next tiles are asked for.
        assert "wgmma.mma_async" in kernel.asm["ptx"]
        assert "wgmma.wait_group.sync.aligned 1" in kernel.asm["ptx"]


def test_a_product_of_one_round_of_large_tiles_is_not_cut_into_more_rounds() -> None:
    # 128 tiles for 132 workers.
    tile = chosen("hopper", (2048, 2048, 2048), 2)
    assert (tile.m, tile.n) == (128, 256)


def test_large_products_get_the_tile_that_loads_least() -> None:
    tile = chosen("hopper", (8192, 8192, 8192), 2)
    assert (tile.m, tile.n, tile.k, tile.stages, tile.halves) == (128, 256, 64, 4, True)


def test_few_rows_are_not_padded_to_a_large_tile() -> None:
    assert chosen("hopper", (4, 14336, 4096), 2).m == 16


def test_small_products_get_tiles_for_more_workers() -> None:
    small, large = (chosen("hopper", (size,) * 3, 2) for size in (512, 4096))
    assert small.m * small.n < large.m * large.n


def test_what_somebody_asks_for_is_what_they_get() -> None:
    tile = gemm_tile((512, 512, 512), (32, 0, 16), workers=132, itemsize=2, shared_bytes=HOPPER_BYTES)
    assert (tile.m, tile.k) == (32, 16)


class Recorder:
    """In the place of a kernel: keeps what it is launched with, and gives itself as what was compiled."""

    def __init__(self) -> None:
        self.launches: list[tuple[Any, ...]] = []
        self.options: list[dict[str, int]] = []

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., Recorder]:
        def launch(*arguments: Any, **options: int) -> Recorder:
            self.launches.append((grid, *arguments))
            self.options.append(options)
            return self

        return launch


@pytest.mark.parametrize("descriptors", [False, True])
def test_later_launches_repeat_the_first_with_other_matrices(
    monkeypatch: pytest.MonkeyPatch, descriptors: bool
) -> None:
    gemm = importlib.import_module("paceline.baselines.kernels.triton_gemm")
    recorder = Recorder()
    monkeypatch.setattr(gemm, "_products", recorder)
    sizes, tile = (32, 32, 64), GemmTile(m=32, n=32, k=32)
    product = gemm.ScheduledGemm(
        [[Span(0, 0, 2)]], sizes, tile, torch.float16, torch.device("cpu"), descriptors=descriptors
    )
    calls = [
        [torch.zeros(shape, dtype=torch.float16) for shape in ((32, 64), (64, 32), (32, 32))] for _ in "ab"
    ]
    for matrices in calls:
        product.run(*matrices)
    first, second = recorder.launches
    # What was compiled knows its warps and stages.
    assert recorder.options == [{"num_warps": tile.warps, "num_stages": tile.stages}, {}]
    assert first[0] == second[0] == (1, 1, 1)
    assert first[4:] == second[4:]
    for launched, matrices in zip((first, second), calls, strict=True):
        for argument, matrix in zip(launched[1:4], matrices, strict=True):
            assert (argument.base if descriptors else argument) is matrix


def test_matrices_at_other_alignments_are_compiled_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    gemm = importlib.import_module("paceline.baselines.kernels.triton_gemm")
    recorder = Recorder()
    monkeypatch.setattr(gemm, "_products", recorder)
    product = gemm.ScheduledGemm(
        [[Span(0, 0, 1)]],
        (4, 4, 4),
        GemmTile(m=32, n=32, k=32),
        torch.float32,
        torch.device("cpu"),
        descriptors=False,
    )
    aligned = torch.zeros(4, 4)
    shifted = torch.zeros(17)[1:].view(4, 4)
    product.run(aligned, aligned, aligned)
    product.run(shifted, aligned, aligned)
    product.run(aligned, aligned, aligned)
    assert [bool(options) for options in recorder.options] == [True, True, False]
