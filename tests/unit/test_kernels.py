"""The kernels family by itself: inputs that never repeat, oracles that cannot be fooled, clocks that must agree."""

from __future__ import annotations

import math
import random
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from kernel_operators import ARITHMETIC, OPERATORS, POINTS

from paceline.families.datasheets import datasheet_of
from paceline.families.kernels.api.context_lengths import context_lengths
from paceline.families.kernels.api.eager import Eager
from paceline.families.kernels.api.problem import TORCH_DTYPES, Problem, UnsupportedError
from paceline.families.kernels.core import oracle
from paceline.families.kernels.core.accounting import (
    MOST_CONTROLLED_NS,
    clock_allowance_ns,
    controlled_allowance_ns,
    slowdown_in_turn,
    slowdown_on_new_inputs,
    unaccounted_ns,
)
from paceline.families.kernels.core.ceilings import describe
from paceline.families.kernels.core.operators import (
    Expected,
    expected_of,
    known_wrong,
    num_variations,
    variation,
)
from paceline.families.kernels.core.oracle import blind_spots, judge
from paceline.families.kernels.core.run import _waiting as waiting_of
from paceline.families.kernels.core.timing_process.working_set import WorkingSet, drawn_anew
from paceline.families.kernels.ops.grouped_gemm.routing import expert_tokens
from paceline.families.kernels.ops.scaled_gemm import reference as scaled_gemm
from paceline.families.kernels.spec import FAMILY
from paceline.workflows.conformance import points_of


def dtypes_of(name: str) -> set[str]:
    """Return the dtypes that an operation has."""
    return {str(p["dtype"]) for p in points_of("kernels", name)}


CASES = [(name, dtype) for name in OPERATORS for dtype in TORCH_DTYPES if dtype in dtypes_of(name)]


def resolved(name: str, dtype: str = "float32", **changes: Any) -> dict[str, Any]:
    """Return all parameters of an operation's conformance point."""
    defaults = {p.name: p.default for p in FAMILY.parameters_for(name)}
    return {**defaults, **POINTS[name], "op": name, "dtype": dtype, **changes}


def applied(inputs: tuple[torch.Tensor, ...], change: Any, rolled: int | None) -> list[torch.Tensor]:
    """Change inputs as a timing process does."""
    found = []
    for index, (tensor, factor) in enumerate(zip(inputs, change.factors, strict=True)):
        moved = tensor.roll(change.roll, 0) if index == rolled and change.roll else tensor
        found.append(moved * factor if factor != 1.0 else moved)
    return found


def test_the_two_halves_know_the_same_operations() -> None:
    assert set(OPERATORS) == set(ARITHMETIC) == set(FAMILY.operations) - {"tile_choice", "custom"}
    assert {name: operator.name for name, operator in OPERATORS.items()} == {name: name for name in OPERATORS}


@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_varied_inputs_give_the_result_that_the_oracle_expects(name: str, dtype: str) -> None:
    operation, torch_dtype, params = OPERATORS[name], TORCH_DTYPES[dtype], resolved(name, dtype)
    draw = operation.draw(params, torch_dtype, seed=5)
    outputs = operation.tensors(params, torch_dtype)[1]
    total = num_variations(operation, params, torch_dtype)
    for index in {0, 1, total // 3, total - 1}:
        change = variation(operation, params, torch_dtype, index)
        inputs = applied(draw.inputs, change, operation.rolled)
        again = reference(name, params, inputs, [tuple(e.value.shape) for e in draw.expected])
        found = [v.to(s.dtype) for v, s in zip(again, outputs, strict=True)]
        check = judge(
            expected_of(operation, draw, change), found, change.output_factors, [s.name for s in outputs]
        )
        assert check.passed, (index, check.reason)


def reference(
    name: str, params: dict[str, Any], inputs: list[torch.Tensor], shapes: list[tuple[int, ...]]
) -> list[torch.Tensor]:
    """Compute an operation in float64 by PyTorch's operators, which the oracle does not use."""
    wide = [t.double() if t.dtype.is_floating_point else t for t in inputs]
    if name == "scaled_gemm":
        return [torch.einsum("mk,nk->mn", wide[0], wide[1]) * wide[2] * wide[3]]
    outputs = [torch.full(shape, float("nan"), dtype=torch.float64) for shape in shapes]
    problem = Problem(operation=name, dtype=torch.float64, device=torch.device("cpu"), params=params)
    Eager(problem).function(*wide, *outputs)
    return outputs


@pytest.mark.parametrize("name", OPERATORS)
def test_no_two_variations_are_alike(name: str) -> None:
    operation, params = OPERATORS[name], resolved(name)
    total = num_variations(operation, params, torch.float32)
    seen = {
        (v.factors, v.roll) for v in (variation(operation, params, torch.float32, i) for i in range(total))
    }
    assert len(seen) == total > 20


@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_the_oracle_rejects_every_known_mistake(name: str, dtype: str) -> None:
    operation, torch_dtype, params = OPERATORS[name], TORCH_DTYPES[dtype], resolved(name, dtype)
    draws = [operation.draw(params, torch_dtype, seed=s) for s in (1, 2)]
    outputs = operation.tensors(params, torch_dtype)[1]
    names = {n for n, _ in known_wrong(operation, draws[0], draws[1], outputs)}
    assert {"zeros", "nan", "stale"} <= names
    assert blind_spots(operation, draws, outputs) == []


def test_a_tolerance_that_admits_a_mistake_is_noticed() -> None:
    operation, params = OPERATORS["gemm"], resolved("gemm")
    draws = [operation.draw(params, torch.float32, seed=s) for s in (1, 2)]
    for draw in draws:
        expected = draw.expected[0]
        object.__setattr__(expected, "bound", torch.full_like(expected.value, 1e-1))
        object.__setattr__(expected, "max_relative_l2", 1.0)
    spots = blind_spots(operation, draws, operation.tensors(params, torch.float32)[1])
    assert "low-precision" in spots or "narrow-inputs" in spots


@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_the_right_result_rounded_to_the_output_passes(name: str, dtype: str) -> None:
    operation, params = OPERATORS[name], resolved(name)
    draw = operation.draw(params, TORCH_DTYPES[dtype], seed=9, magnitude=1.0)
    outputs = operation.tensors(params, TORCH_DTYPES[dtype])[1]
    right = [e.value.to(s.dtype) for e, s in zip(draw.expected, outputs, strict=True)]
    check = judge(draw.expected, right, [1.0] * len(right), [s.name for s in outputs])
    assert check.passed, check.reason


def test_conformance_has_every_width_and_dtype() -> None:
    found = points_of("kernels", "dequant_gemm")
    assert {p["bits"] for p in found} == set(range(1, 9))
    assert dtypes_of("gemm") == set(TORCH_DTYPES)


@pytest.mark.parametrize(
    ("passes", "unaccounted", "expected"),
    [
        ([100] * 8, [5] * 8, 5),
        ([100] * 8, [5, 5, 5, 5, 900, 900, 900, 900], 5),
        ([10] * 8, [90] * 8, 90),
        ([10, 10, 10, 10, 10, 10, 100, 100], [90, 90, 90, 90, 90, 90, 0, 0], 90),
        ([10], [3], 3),
    ],
    ids=["honest", "a busy machine", "always hiding", "hiding in most passes", "one pass"],
)
def test_hidden_time_shows_and_a_busy_machine_does_not(
    passes: list[int], unaccounted: list[int], expected: float
) -> None:
    assert unaccounted_ns(passes, unaccounted) == expected


def test_the_technique_that_hides_least_sets_the_allowance_of_all() -> None:
    assert clock_allowance_ns([([100] * 4, [700_000] * 4), ([100] * 4, [9_000_000] * 4)]) == 1_400_000
    assert clock_allowance_ns([([100] * 4, [10] * 4)]) == 500_000


def test_an_idle_process_on_a_slow_machine_excuses_late_messages_but_not_without_limit() -> None:
    assert controlled_allowance_ns(500_000, []) == 500_000
    assert controlled_allowance_ns(500_000, [(1, 100_000)] * 8) == 500_000
    assert controlled_allowance_ns(500_000, [(1, 600_000)] * 8) == 1_200_000
    assert controlled_allowance_ns(500_000, [(1, 80_000_000)] * 8) == MOST_CONTROLLED_NS


@pytest.mark.parametrize(
    ("passes", "new", "expected"),
    [
        ([100] * 8, [(4, 100), (5, 100), (6, 100), (7, 100)], 1.0),
        ([10] * 8, [(4, 100), (5, 100), (6, 100), (7, 100)], 10.0),
        ([100] * 8, [(4, 100), (5, 900), (6, 900), (7, 100)], 1.0),
        (
            [100, 100, 100, 10, 10, 10, 10, 10],
            [(1, 100), (2, 100), (4, 100), (5, 100), (6, 100), (7, 100)],
            10,
        ),
        ([10, 90, 10, 90, 10, 90, 10, 90], [(4, 90), (5, 90), (6, 90), (7, 90)], 9.0),
        ([10], [(1, 10)], 1.0),
    ],
    ids=["honest", "remembering", "a busy machine", "remembering later", "slow now and then", "one pass"],
)
def test_remembered_results_show_and_a_busy_machine_does_not(
    passes: list[int], new: list[tuple[int, int]], expected: float
) -> None:
    assert slowdown_on_new_inputs(passes, new) == expected


@pytest.mark.parametrize(
    ("usual_ns", "passes", "new", "slowdown"),
    [
        (100, [100] * 8, [100] * 8, 1.0),
        (100, [10] * 8, [100] * 8, 10.0),
        (100, [10, 10, 10, 100, 100, 100, 100, 100], [100] * 8, 10.0),
        (10, [100] * 8, [100] * 8, 10.0),
        (50, [100] * 8, [100] * 8, 1.0),
        (100, [100] * 8, [100, 100, 100, 900, 900, 900, 900, 900], 1.0),
    ],
    ids=["honest", "remembering", "remembering a few", "honest since it is in doubt", "busier", "disturbed"],
)
def test_passes_in_turn_tell_who_remembers(
    usual_ns: float, passes: list[int], new: list[int], slowdown: float
) -> None:
    assert slowdown_in_turn(usual_ns, passes, new) == pytest.approx(slowdown)


def test_noise_alone_refuses_nobody_in_turn() -> None:
    rng = random.Random(4)
    refused = 0
    for _ in range(2000):
        # log-normal with a deviation of a third: a machine whose cores others use, too
        passes, new = ([round(1e5 * rng.lognormvariate(0, 0.33)) for _ in range(64)] for _ in range(2))
        refused += slowdown_in_turn(1e5, passes, new) > 1.5
    assert refused == 0


def test_contexts_and_experts_are_ragged_as_declared() -> None:
    assert context_lengths({"batch": 4, "context": 100, "spread": "linear"}) == [25, 51, 75, 100]
    assert context_lengths({"batch": 3, "context": 1600, "spread": "one-long"}) == [1600, 101, 101]
    shares = expert_tokens({"tokens": 64, "experts": 8, "skew": "skewed"})
    assert sum(shares) == 64 and shares == sorted(shares, reverse=True)
    assert sum(expert_tokens({"tokens": 10, "experts": 4, "skew": "even"})) == 10


@pytest.mark.parametrize(
    ("params", "problem"),
    [
        (resolved("attention_decode", heads=7, kv_heads=2), "not a multiple of kv_heads"),
        (resolved("dequant_gemm", bits=9), "1 to 8 bits"),
        (resolved("dequant_gemm", k=100, group=64), "not a multiple of group"),
        (resolved("copy", size_bytes=6), "not a whole number"),
        (resolved("strided_copy", columns=99), "rows would overlap"),
        (resolved("scaled_gemm", "float64"), "not float64"),
        (resolved("scaled_gemm", k=300), "multiples of 16"),
    ],
)
def test_a_point_that_cannot_be_is_refused_in_words(params: dict[str, Any], problem: str) -> None:
    assert any(problem in text for text in FAMILY.check(params))


def test_every_dtype_that_an_operation_lacks_is_refused() -> None:
    for name in OPERATORS:
        lacking = set(TORCH_DTYPES) - dtypes_of(name)
        assert all(FAMILY.check(resolved(name, dtype)) for dtype in lacking)
        assert all(not FAMILY.check({**resolved(name), **point}) for point in points_of("kernels", name))


def test_float8_factors_are_held_against_the_rate_and_the_bytes_of_float8() -> None:
    point = resolved("scaled_gemm", "bfloat16", m=8192, n=8192, k=8192)
    assert ARITHMETIC["scaled_gemm"].traffic(point) == 2 * 8192**2 + 2 * 8192**2 + 8
    ceiling = {
        "flops_per_s": 1e15,
        "bytes_per_s": 4e12,
        "datasheet": datasheet_of("NVIDIA H200", kind="cuda"),
    }
    found = describe(ARITHMETIC[point["op"]], point, ceiling, 1e-3)
    assert found["datasheet"]["flops_per_s"] == 1979e12
    assert found["fraction_of_datasheet"] == pytest.approx(2 * 8192**3 / 1979e12 / 1e-3)
    on_cpu = {**ceiling, "datasheet": datasheet_of("Intel(R) Xeon(R) @ 2.00GHz", kind="cpu")}
    assert "fraction_of_datasheet" not in describe(ARITHMETIC[point["op"]], point, on_cpu, 1e-3)


def test_float8_that_a_device_lacks_is_unsupported_in_torchs_words(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any, **options: Any) -> None:
        raise RuntimeError("torch._scaled_mm is only supported on newer devices\nmore")

    monkeypatch.setattr(torch, "_scaled_mm", refuse)
    problem = Problem(operation="scaled_gemm", dtype=torch.bfloat16, device=torch.device("cpu"))
    with pytest.raises(UnsupportedError, match=r"says of this one: torch\._scaled_mm .* newer devices$"):
        Eager(problem)
    Eager(Problem(operation="gemm", dtype=torch.bfloat16, device=torch.device("cpu")))


def test_sums_of_fourteen_bits_are_within_the_bound_of_accelerators_and_mistakes_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    original = scaled_gemm.within

    def as_on_an_accelerator(value: Any, naive: Any, dtype: Any, **options: Any) -> Any:
        return original(value, naive, dtype, **{**options, "extra": extras.pop(0)})

    params = resolved("scaled_gemm", "bfloat16", m=65, n=64, k=4096)
    operation, extras = OPERATORS["scaled_gemm"], []
    plain = [operation.draw(params, torch.bfloat16, seed=s) for s in (1, 2)]
    factors = [
        (d.inputs[0].double() * d.inputs[2].double(), d.inputs[1].double() * d.inputs[3].double())
        for d in plain
    ]
    extras += [scaled_gemm.tensor_core_error(a, b) for a, b in factors]
    monkeypatch.setattr(scaled_gemm, "within", as_on_an_accelerator)
    draws = [operation.draw(params, torch.bfloat16, seed=s) for s in (1, 2)]
    outputs = operation.tensors(params, torch.bfloat16)[1]
    assert blind_spots(operation, draws, outputs) == []
    promoted, alone = (tensor_core_sum(*factors[0], steps=n).to(torch.bfloat16) for n in (4, 1 << 30))
    assert judge(draws[0].expected, [promoted], [1.0], ["c"]).passed
    assert not judge(draws[0].expected, [alone], [1.0], ["c"]).passed
    assert not judge(plain[0].expected, [promoted], [1.0], ["c"]).passed


@pytest.mark.parametrize("scaled_first", [True, False])
def test_float8_may_be_scaled_before_the_product_or_after_it(scaled_first: bool) -> None:
    """A hundred draws: one in 150 was refused while the plain computation scaled afterwards only."""
    operation, params = OPERATORS["scaled_gemm"], resolved("scaled_gemm", m=130, n=64, k=304)
    worst = 0.0
    for seed in range(100):
        draw = operation.draw(params, torch.float32, seed=seed)
        a_MK, b_NK, scale_a, scale_b = draw.inputs
        if scaled_first:
            c_MN = (a_MK.float() * scale_a) @ (b_NK.float() * scale_b).T
        else:
            c_MN = a_MK.float() @ b_NK.float().T * scale_a * scale_b
        (expected,) = draw.expected
        worst = max(worst, float(((c_MN.double() - expected.value).abs() / expected.bound).max()))
    assert worst < 1 / 4


def tensor_core_sum(a_MK: torch.Tensor, b_NK: torch.Tensor, *, steps: int) -> torch.Tensor:
    """Add products in steps of 32, cut off 13 bits below the largest; every few steps the sum moves to a wide one."""
    wide, narrow = torch.zeros(2, len(a_MK), len(b_NK), dtype=torch.float64)
    for step, k in enumerate(range(0, a_MK.shape[1], 32)):
        if step % steps == 0:
            wide, narrow = wide + narrow, torch.zeros_like(narrow)
        terms_MNK = torch.cat([a_MK[:, None, k : k + 32] * b_NK[None, :, k : k + 32], narrow[:, :, None]], 2)
        largest = terms_MNK.abs().amax(2, keepdim=True).clamp(min=1e-30)
        unit = torch.exp2(torch.floor(torch.log2(largest)) - 13)
        narrow = (torch.trunc(terms_MNK / unit) * unit).sum(2)
    return wide + narrow


def test_new_inputs_in_float8_share_nothing_with_a_draw() -> None:
    draw = OPERATORS["scaled_gemm"].draw(resolved("scaled_gemm"), torch.float32, seed=5)
    inputs = [torch.empty_like(t) for t in draw.inputs]
    working = WorkingSet(inputs, [torch.empty(130, 64)])
    generator = torch.Generator().manual_seed(1)
    change = {"variant": 0, "factors": [1.0] * 4, "roll": 0}
    working.fill(drawn_anew(draw.inputs[: len(inputs)], generator), change, rolled=None)
    assert (inputs[0].float() == draw.inputs[0].float()).float().mean() < 0.2
    assert 0.9 < float(inputs[0].float().std()) < 1.1
    change = {"variant": 0, "factors": [1.0, 1.0, -4.0, 1.0], "roll": 2}
    working.fill(draw.inputs, change, rolled=0)
    assert working.changed_input([draw.inputs], rolled=0) is None
    assert torch.equal(inputs[0].float(), draw.inputs[0].float().roll(2, 0))
    inputs[1].view(torch.uint8)[3, 5] ^= 1
    assert working.changed_input([draw.inputs], rolled=0) == 1


def test_rates_follow_from_formulas() -> None:
    params = resolved("gemm", m=10, n=20, k=30)
    derived = {d.name: d.compute(params, 0.5) for d in FAMILY.derived}
    assert derived["arithmetic_rate"] == 2 * 10 * 20 * 30 / 0.5
    assert derived["bandwidth"] == (300 + 600 + 200) * 4 / 0.5


def test_the_fraction_of_a_datasheet_is_that_of_the_binding_term() -> None:
    sheet = datasheet_of("NVIDIA H200", kind="cuda")
    point = resolved("gemm", dtype="bfloat16", m=8192, n=8192, k=8192)
    found = describe(
        ARITHMETIC[point["op"]], point, {"flops_per_s": 7e14, "bytes_per_s": 4e12, "datasheet": sheet}, 2e-3
    )
    assert found["fraction_of_datasheet"] == pytest.approx(2 * 8192**3 / 989e12 / 2e-3)
    no_rate = datasheet_of("Ascend910B3", kind="npu")
    found = describe(
        ARITHMETIC["gemm"],
        resolved("gemm"),
        {"flops_per_s": 7e14, "bytes_per_s": 4e12, "datasheet": no_rate},
        2e-3,
    )
    assert found["datasheet_reason"] == "no published rate of operations in float32"
    assert "fraction_of_datasheet" not in found


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("size", [1, 6, 7, 8, 64])
@pytest.mark.parametrize("wrong", ["none", "far", "nan", "infinite", "everywhere"])
@pytest.mark.parametrize("factor", [1.0, -8.0])
def test_outputs_are_judged_alike_in_pieces_of_any_size(
    monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, size: int, wrong: str, factor: float
) -> None:
    generator = torch.Generator().manual_seed(size)
    value = torch.randn(size, generator=generator, dtype=torch.float64).to(dtype).double()
    bound = 1e-3 + 1e-2 * value.abs()
    expected = [Expected(value=value, bound=bound, max_relative_l2=5e-3)]
    changes = {"far": 1.01 * bound[-1].item() + 0.1, "nan": math.nan, "infinite": math.inf}
    for place in range(size if wrong in changes else 1):
        output = value.clone()
        if wrong in changes:
            output[place] += changes[wrong]
        if wrong == "everywhere":
            output += 0.9 * bound * value.sign()
        output = (factor * output).to(dtype)
        found = []
        for piece in (1 << 16, 7, 1):
            monkeypatch.setattr(oracle, "PIECE", piece)
            found.append(judge(expected, [output], [factor], ["out"]))
        assert {check.passed for check in found} == {wrong == "none"}
        assert len({check.reason for check in found}) == 1
        assert [c.relative_error for c in found] == pytest.approx([found[0].relative_error] * 3, rel=1e-9)


def test_a_blind_spot_is_named_though_other_mistakes_are_seen_at_once() -> None:
    operation, params = OPERATORS["gemm"], resolved("gemm")
    draws = [operation.draw(params, torch.float32, seed=s) for s in (1, 2, 3)]
    for draw in draws[:-1]:
        object.__setattr__(draw.expected[0], "bound", math.inf)
        object.__setattr__(draw.expected[0], "max_relative_l2", 1e-2)
    outputs = operation.tensors(params, torch.float32)[1]
    assert blind_spots(operation, draws, outputs) == []
    object.__setattr__(draws[-1].expected[0], "bound", math.inf)
    object.__setattr__(draws[-1].expected[0], "max_relative_l2", 1e-2)
    assert "low-precision" in blind_spots(operation, draws, outputs)


def timed(*shares: float, device: str = "cpu") -> Any:
    """Return a candidate whose passes took a millisecond, of which its thread had no core for these shares."""
    point = SimpleNamespace(device=device)
    return SimpleNamespace(
        point=point, pass_ns=[10**6] * len(shares), busy_ns=[round(10**6 * (1 - share)) for share in shares]
    )


def test_what_waited_for_a_core_is_the_worst_techniques_upper_quartile_pass() -> None:
    rare = timed(0.0, 0.0, 0.9, 0.0, 0.0, 0.0, 0.0, 0.0)
    often = timed(0.0, 0.3, 0.9, 0.0, 0.0, 0.3, 0.0, 0.0)
    assert waiting_of(None, [rare]) == 0
    assert waiting_of(None, [rare, often]) == pytest.approx(0.3)
    assert waiting_of(0.5, [rare, often]) == 0.5
    assert waiting_of(0.1, [rare, often]) == pytest.approx(0.3)
    assert waiting_of(None, [timed(0.2)]) == pytest.approx(0.2)


def test_a_thread_that_counts_more_than_the_clock_waited_for_nothing() -> None:
    assert waiting_of(None, [timed(-0.01, -0.02)]) == 0


def test_passes_that_a_device_times_tell_nothing_of_the_cores() -> None:
    assert waiting_of(None, [timed(0.9), timed(0.0, device="cuda")]) is None
