"""Planning: the same bytes from the same inputs, the right points, a reason for each that is left out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import suite_text
from figures import Figures
from hypothesis import given, settings
from hypothesis import strategies as st
from own_time import least_seconds, lines_of
from shipped_suites import shipped

from paceline.base.errors import UserError
from paceline.spec import content
from paceline.spec.plans.plan import Plan, Selection, canonical, make_plan
from paceline.spec.profiles.profile import RunnerProfile, load_runner


def runner(name: str = "local-cpu") -> RunnerProfile:
    return load_runner(content.find_runner(name))


def plan(folder: Path, *changes: tuple[str, str], **selection: Any) -> Plan:
    return make_plan([suite_text.load(folder, *changes)], runner(), Selection(**selection))


def points(planned: Plan) -> list[tuple[int, int, tuple[str, ...]]]:
    return [
        (b["params"]["size_bytes"], b["ranks"], tuple(c["label"] for c in b["cases"])) for b in planned.blocks
    ]


def reasons(planned: Plan) -> dict[str, str]:
    return {f"{s['label']}/{s['params'].get('ranks')}": s["reason"] for s in planned.data["skipped"]}


def test_two_processes_with_other_hash_seeds_plan_the_same_bytes(tmp_path: Path) -> None:
    suites = ["collectives/all-reduce", "kernels/gemm", "training/data-parallel"]
    command = [sys.executable, "-m", "paceline.cli", "plan", *suites, "--json", "--results", str(tmp_path)]
    outputs = [
        subprocess.run(
            command, env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True, timeout=120
        ).stdout
        for seed in ("1", "4242")
    ]
    assert outputs[0] == outputs[1]
    assert len(json.loads(outputs[0])["blocks"]) > 10


def planned(folder: Path, sizes: int) -> Callable[[], Plan]:
    """Return what plans four cases of each of so many sizes."""
    values = ", ".join(str(4 * (i + 1)) for i in range(sizes))
    suite = suite_text.load(
        folder, ("[4KiB, 1MiB]", f"[{values}]"), ("  - {technique: ring, ranks: 4}", "  []")
    )
    local = runner()
    return lambda: make_plan([suite], local, Selection())


def test_twice_the_cases_take_twice_the_lines(tmp_path: Path) -> None:
    few, many = planned(tmp_path, 100), planned(tmp_path, 200)
    assert (few().num_cases, many().num_cases) == (400, 800)
    assert lines_of(lambda: many().text) < 2.1 * lines_of(lambda: few().text)


@pytest.mark.measured
def test_ten_thousand_cases_are_planned_within_two_seconds(tmp_path: Path, figure: Figures) -> None:
    plan_all = planned(tmp_path, 2500)
    assert plan_all().num_cases == 10_000
    taken_s = least_seconds(lambda: plan_all().text)
    figure("processor time of a plan of ten thousand cases", taken_s, unit="s", most=2.0)


def test_the_matrix_is_every_combination_and_a_rule_leaves_out_what_fits_all_of_it(tmp_path: Path) -> None:
    both, alone = ("native", "ring"), ("native",)
    small, large = 4096, 1 << 20
    assert points(plan(tmp_path)) == [
        (small, 2, both),
        (small, 4, alone),
        (large, 2, both),
        (large, 4, alone),
    ]


def test_an_exclusion_compares_values_and_not_their_spelling(tmp_path: Path) -> None:
    rule = ("{technique: ring, ranks: 4}", "{size_bytes: 1024KiB}")
    assert points(plan(tmp_path, rule)) == [(4096, n, ("native", "ring")) for n in (2, 4)]


def test_zipped_lists_advance_together_inside_the_matrix(tmp_path: Path) -> None:
    planned = plan(
        tmp_path,
        ("  size_bytes: [4KiB, 1MiB]\n", ""),
        ("zip: []", "zip: [{size_bytes: [8, 16, 16], payload: [gaussian, gaussian, sparse]}]"),
        ("{technique: ring, ranks: 4}", "{ranks: 4}"),
    )
    found = [(b["params"]["size_bytes"], b["params"]["payload"]) for b in planned.blocks]
    assert found == [(8, "gaussian"), (16, "gaussian"), (16, "sparse")]


def test_a_tier_replaces_lists_and_settings_and_adds_exclusions(tmp_path: Path) -> None:
    quick = ("protocol: {launches: 2}\n", "protocol: {launches: 2}\n    exclude: [{size_bytes: 1MiB}]\n")
    planned = plan(tmp_path, quick, tier="quick")
    assert points(planned) == [(4096, 2, ("native", "ring"))]
    assert planned.blocks[0]["protocol"]["launches"] == 2
    assert planned.num_results == 4
    assert plan(tmp_path, quick, tier="full").blocks[0]["protocol"]["launches"] == 5
    replaced = plan(
        tmp_path,
        ("{ranks: [2]}", "{ranks: [3]}\n    techniques: [native]\n    workload: {payload: sparse}"),
        tier="quick",
    )
    assert {(b["ranks"], b["params"]["payload"], len(b["cases"])) for b in replaced.blocks} == {
        (3, "sparse", 1)
    }


def test_a_tier_may_leave_the_suite_out_with_its_reason(tmp_path: Path) -> None:
    planned = plan(tmp_path, ("    matrix: {ranks: [2]}\n", "    omit: takes an hour\n"), tier="quick")
    assert planned.num_cases == 0
    assert planned.data["skipped"] == [
        {"suite": "collectives/example", "label": None, "params": {}, "reason": "takes an hour"}
    ]


def test_every_case_that_cannot_run_is_listed_with_its_reason(tmp_path: Path) -> None:
    planned = plan(
        tmp_path,
        ("  - ring\n", "  - ring\n  - recursive-doubling\n  - tracer\n"),
        ("ranks: [2, 4]", "ranks: [2, 3, 8]"),
        ("  - {technique: ring, ranks: 4}", "  []"),
    )
    found = reasons(planned)
    assert found["native/8"] == found["ring/8"] == "needs 8 ranks; runner local-cpu offers 4"
    assert found["tracer/2"] == "tracer does not implement all_reduce"
    assert "native/2" not in found
    listed = len(planned.data["skipped"]) + planned.num_cases
    assert listed == 2 * 3 * 4


def test_points_that_no_machine_can_run_say_what_is_wrong(tmp_path: Path) -> None:
    odd = plan(tmp_path, ("[4KiB, 1MiB]", "[1]"), ("[2, 4]", "[2]"))
    assert set(reasons(odd).values()) == {"size_bytes 1 holds less than one element a rank (4 B)"}
    link = plan(tmp_path, ("[2, 4]", "[2]\n  link: [delay-1ms]"))
    assert set(reasons(link).values()) == {
        "needs the link 'delay-1ms', which runner local-cpu does not offer"
    }
    shaped = make_plan(
        [suite_text.load(tmp_path, ("[2, 4]", "[2]\n  link: [delay-1ms]"))], runner("netns-cpu"), Selection()
    )
    assert not shaped.data["skipped"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("[4KiB, 1MiB]", "[4KiB, 4096]"), "the same point occurs twice"),
        (("  size_bytes: [4KiB, 1MiB]\n", ""), "needs 'size_bytes' for op all_reduce"),
        (("[2, 4]", "[2]\n  root: [0]"), "'root' has no meaning for op all_reduce"),
    ],
)
def test_points_that_make_no_sense_are_refused(tmp_path: Path, change: tuple[str, str], said: str) -> None:
    with pytest.raises(UserError, match=said):
        plan(tmp_path, change)


def test_one_suite_cannot_be_planned_twice(tmp_path: Path) -> None:
    suite = suite_text.load(tmp_path)
    with pytest.raises(UserError, match="occurs twice"):
        make_plan([suite, suite], runner(), Selection())


def test_a_selection_keeps_the_baseline_and_matching_points(tmp_path: Path) -> None:
    planned = plan(
        tmp_path, techniques=("ring",), filters=(("size_bytes", "1MiB"), ("ranks", "2")), launches=3
    )
    assert points(planned) == [(1 << 20, 2, ("native", "ring"))]
    assert planned.num_results == 6
    for selection, where in (
        ({"techniques": ("rng",)}, "--techniques"),
        ({"filters": (("rank", "2"),)}, "--filter"),
    ):
        with pytest.raises(UserError, match="did you mean") as caught:
            plan(tmp_path, **selection)
        assert caught.value.where == where


def test_a_filter_reads_values_as_suites_and_tables_write_them() -> None:
    suite = shipped("serving/speculation")

    def matching(*filters: tuple[str, str]) -> int:
        return len(make_plan([suite], runner(), Selection(tier="standard", filters=filters)).blocks)

    assert matching() == 108
    for text in ("true", "True"):
        assert matching(("interruptible", text)) == 54
    for text in ("0.3", "0.30", "3e-1"):
        assert matching(("draft_ratio", text)) == 36
    for text in ("30ms", "0.03", "0.03s"):
        assert matching(("target_latency", text)) == 108
    for wrong in (
        ("interruptible", "yes"),
        ("servers", "7.5"),
        ("target_latency", "30"),
        ("draft_ratio", "lots"),
    ):
        assert matching(wrong) == 0


def test_a_case_is_identified_by_what_is_measured_and_not_by_its_neighbours(tmp_path: Path) -> None:
    def ids(*changes: tuple[str, str]) -> dict[tuple[int, int, str], str]:
        return {
            (b["params"]["size_bytes"], b["ranks"], c["label"]): c["case_id"]
            for b in plan(tmp_path, *changes).blocks
            for c in b["cases"]
        }

    first = ids()
    assert len(set(first.values())) == len(first)
    more = ids(
        ("[4KiB, 1MiB]", "[8, 4096, 1048576]"),
        ("  - ring\n", "  - ring\n  - tree\n"),
        ("An ex", "Another ex"),
    )
    assert first.items() <= more.items()
    assert not set(first.values()) & set(ids(("gaussian", "sparse")).values())


@settings(max_examples=5)
@given(launches=st.integers(1, 40), more=st.integers(1, 40), seconds=st.floats(0.1, 10))
def test_more_work_is_never_estimated_to_take_less_time(
    tmp_path_factory: pytest.TempPathFactory, launches: int, more: int, seconds: float
) -> None:
    folder = tmp_path_factory.mktemp("plan")

    def estimate(*changes: tuple[str, str], **selection: Any) -> tuple[float, float]:
        found = plan(folder, ("launches: 5", f"max_seconds: {seconds!r}"), *changes, **selection).data[
            "estimate"
        ]
        return found["likely_s"], found["most_s"]

    base = estimate(launches=launches)
    for larger in (
        estimate(launches=launches + more),
        estimate(("[4KiB, 1MiB]", "[4KiB, 1MiB, 16MiB]"), launches=launches),
        estimate(("  - ring\n", "  - ring\n  - tree\n"), launches=launches),
    ):
        assert larger[0] >= base[0] > 0
        assert larger[1] >= base[1] > 0
    assert base[0] <= base[1]


@given(
    st.dictionaries(
        st.text("abc", max_size=3),
        st.integers() | st.floats(allow_nan=False, allow_infinity=False),
        max_size=5,
    )
)
def test_canonical_text_does_not_depend_on_the_order_of_keys(data: dict[str, float]) -> None:
    assert canonical(data) == canonical(dict(reversed(list(data.items()))))


def test_canonical_text_refuses_what_is_not_a_number() -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        canonical({"a": float("nan")})


@pytest.mark.parametrize(
    ("name", "modules"), [("tour/data-parallel", ["torch._dynamo"]), ("tour/all-reduce", [])]
)
def test_a_plan_says_what_its_fork_server_imports(name: str, modules: list[str]) -> None:
    suite = shipped(name)
    assert make_plan([suite], runner(), Selection()).data["preload"] == modules
