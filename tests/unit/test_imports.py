from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from paceline.analysis.points import grade_of
from paceline.base.errors import UserError
from paceline.base.families.contracts import contract_id
from paceline.base.families.family import load_family
from paceline.cli import application
from paceline.records.format.record import IMPORTED, Measurement, parse_line
from paceline.records.format.record_file import content_of
from paceline.records.imports import import_file
from paceline.records.imports.reading import GIGA, MICRO, number
from paceline.records.store.folder import RunRecord
from paceline.records.store.integrity import verify

NCCL_TEXT = """\
# nccl-tests version 2.17.6 nccl-headers=22809 nccl-library=22809
# Collective test starting: all_reduce_perf
# nThread 1 nGpus 2 minBytes 1024 maxBytes 1048576 step: 1024(factor) warmup iters: 1 iters: 20 agg iters: 1
#
# Using devices
#  Rank  0 Group  0 Pid   4211 on  secret-host device  0 [0000:1b:00] NVIDIA A30
#  Rank  1 Group  0 Pid   4211 on  secret-host device  1 [0000:3d:00] NVIDIA A30
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)
        1024           256     float     sum      -1    13.37    0.08    0.08       0    12.91    0.08    0.08       0
     1048576        262144     float     sum      -1   101.40   10.34   10.34       0    98.75   10.62   10.62       3
# Out of bounds values : 3 FAILED
# Avg bus bandwidth    : 5.27
#
# Collective test concluded: all_reduce_perf
"""
_FIRST_ROW = NCCL_TEXT.index("        1024 ")
HEAD_TEXT, ROWS_TEXT = NCCL_TEXT[:_FIRST_ROW], NCCL_TEXT[_FIRST_ROW:]

OSU_TEXT = """\

# OSU MPI Allreduce Latency Test v7.4
# Datatype: MPI_INT.
# Size       Avg Latency(us)   Min Latency(us)   Max Latency(us)  Iterations
4                       1.73              1.51              1.96        1000
65536                  37.08             36.44             37.71         100

# OSU MPI Bandwidth Test v7.4
# Datatype: MPI_CHAR.
# Size      Bandwidth (MB/s)
1                       6.42
4194304             11873.09

# OSU MPI Multiple Bandwidth / Message Rate Test v7.4
# [ pairs: 4 ] [ window size: 64 ]
# Size                  MB/s        Messages/s
8                     212.75       26593750.12

# OSU MPI Barrier Latency Test v7.4
# Avg Latency(us)
             2.41
"""


def nccl_json(**changes: Any) -> dict[str, Any]:
    side = {"time": 41.327614, "alg_bw": 25.372154, "bus_bw": 44.401270, "nwrong": 0.000000}
    return {
        "version": 1,
        "start_time": "2026-02-03 04:05:06",
        "args": ["/home/someone/nccl-tests/build/all_reduce_perf", "-J", "out.json"],
        "env": ["HOME=/home/someone", "API_TOKEN=hunter2"],
        "nccl_version": 22809,
        "config": {
            "nthreads": 1,
            "ngpus": 8,
            "minimum_bytes": 1048576,
            "maximum_bytes": 2097152,
            "step_factor": 2,
            "warmup_iters": 1,
            "iterations": 20,
            "aggregated_iterations": 1,
            "validation": 1,
            "graph": 0,
            "blocking_collectives": "false",
            "parallel_init": "false",
            "devices": [
                {
                    "rank": r,
                    "group": 0,
                    "pid": 777,
                    "hostname": "secret-host",
                    "device": r,
                    "device_hex": f"0000:{r:02x}:00",
                    "device_info": "NVIDIA H100 80GB HBM3",
                }
                for r in range(8)
            ],
        },
        "results": [
            {
                "size": 1048576,
                "count": 262144,
                "type": "float",
                "redop": "sum",
                "root": "    -1",
                "out_of_place": side,
                "in_place": {**side, "time": 40.125, "nwrong": None},
                "actual_iterations": 20,
                "experiment_name": "AllReduce",
                **changes,
            }
        ],
        "out_of_bounds": {"count": 0, "okay": "true"},
        "average_bus_bandwidth": {"bandwidth": 44.401270, "okay": "unchecked"},
        "errors": [],
        "end_time": "2026-02-03 04:05:16",
    }


def pytest_json(**stats: Any) -> dict[str, Any]:
    data = [0.1 + 0.2, 1e-9, 0.00123456789012345]
    return {
        "machine_info": {
            "node": "secret-host",
            "python_version": "3.12.4",
            "system": "Linux",
            "machine": "x86_64",
            "cpu": {"brand_raw": "Some CPU", "count": 8, "flags": ["sse"]},
        },
        "commit_info": {"id": "abc123", "dirty": False, "branch": "secret-branch"},
        "benchmarks": [
            {
                "group": "sums",
                "name": "test_sum[10]",
                "fullname": "tests/test_sum.py::test_sum[10]",
                "params": {"n": 10, "scale": 0.5, "shape": [2, 3]},
                "param": "10",
                "extra_info": {},
                "options": {"timer": "perf_counter"},
                "stats": {
                    "min": 1e-9,
                    "max": 0.1 + 0.2,
                    "mean": 0.10041152263,
                    "median": 0.00123456789012345,
                    "rounds": 3,
                    "iterations": 1,
                    "data": data,
                    **stats,
                },
            }
        ],
        "datetime": "2026-02-03T04:05:06+00:00",
        "version": "5.1.0",
    }


def read(tmp_path: Path, style: str, content: str | dict[str, Any], **options: Any) -> RunRecord:
    source = tmp_path / "given.txt"
    source.parent.mkdir(exist_ok=True)
    source.write_text(content if isinstance(content, str) else json.dumps(content))
    return import_file(tmp_path / "store", source, style, **options)


def pick(record: RunRecord, metric: str, **params: Any) -> Measurement:
    found = [
        m
        for m in record.measurements
        if m.metric.name == metric and all(m.params.get(k) == v for k, v in params.items())
    ]
    assert len(found) == 1, found
    return found[0]


def test_nccl_json_keeps_values_in_base_units(tmp_path: Path) -> None:
    record = read(tmp_path, "nccl-tests", nccl_json())
    assert len(record.measurements) == 6
    time = pick(record, "time", in_place=False)
    assert time.samples == [4.1327614e-05]
    assert time.metric.unit == "s"
    assert pick(record, "algbw", in_place=False).samples == [25372154000.0]
    assert pick(record, "busbw", in_place=False).samples == [44401270000.0]
    assert pick(record, "time", in_place=True).samples == [4.0125e-05]
    assert time.params == {
        "op": "all_reduce",
        "ranks": 8,
        "size_bytes": 1048576,
        "count": 262144,
        "dtype": "float32",
        "redop": "sum",
        "in_place": False,
    }
    assert time.scale == {"ranks": 8}
    assert record.run.host_class == "imported: NVIDIA H100 80GB HBM3 × 8"
    assert verify(tmp_path / "store") == []


def test_what_the_tool_says_about_correctness_is_kept_as_its_word_only(tmp_path: Path) -> None:
    record = read(tmp_path, "nccl-tests", nccl_json())
    checked = pick(record, "time", in_place=False).correctness
    unchecked = pick(record, "time", in_place=True).correctness
    assert checked is not None
    assert unchecked is not None
    assert checked["passed"] is None
    assert checked["oracle"] is None
    assert checked["reported"]["wrong_elements"] == 0
    assert unchecked["reported"]["wrong_elements"] is None
    assert grade_of(record.run, 20) == "D"
    assert record.run.reason == "import"


@pytest.mark.parametrize(
    ("style", "content"),
    [("nccl-tests", nccl_json()), ("nccl-tests", NCCL_TEXT), ("pytest-benchmark", pytest_json())],
)
def test_environment_hosts_and_paths_of_foreign_files_are_not_kept(
    tmp_path: Path, style: str, content: str | dict[str, Any]
) -> None:
    written = content_of(read(tmp_path, style, content).path).decode()
    for secret in ("hunter2", "API_TOKEN", "secret-host", "/home/someone", "secret-branch"):
        assert secret not in written


def test_wrong_elements_leave_no_number(tmp_path: Path) -> None:
    side = {"time": 1.0, "alg_bw": 1.0, "bus_bw": 1.0, "nwrong": 2.0}
    record = read(tmp_path, "nccl-tests", nccl_json(in_place=side))
    wrong = pick(record, "time", in_place=True)
    assert (wrong.status, wrong.value, wrong.samples) == ("incorrect", None, [])
    assert "2 wrong elements" in str(wrong.reason)
    assert pick(record, "time", in_place=False).status == "ok"


def test_nan_is_never_a_number(tmp_path: Path) -> None:
    side = {"time": "nan", "alg_bw": "nan", "bus_bw": "nan", "nwrong": None}
    record = read(tmp_path, "nccl-tests", nccl_json(in_place=side))
    assert pick(record, "time", in_place=True).status == "invalid"


def test_an_operation_in_place_only_has_no_other_half(tmp_path: Path) -> None:
    record = read(tmp_path, "nccl-tests", nccl_json(out_of_place=None))
    assert {m.params["in_place"] for m in record.measurements} == {True}


def test_nccl_text_has_the_same_meaning_as_its_columns(tmp_path: Path) -> None:
    record = read(tmp_path, "nccl-tests", NCCL_TEXT)
    small = pick(record, "time", in_place=False, size_bytes=1024)
    assert small.samples == [1.337e-05]
    assert small.detail == {"as_written": ["13.37"], "unit": "us"}
    assert pick(record, "busbw", in_place=False, size_bytes=1048576).samples == [10340000000.0]
    assert pick(record, "time", in_place=True, size_bytes=1048576).status == "incorrect"
    assert {m.params["op"] for m in record.measurements} == {"all_reduce"}
    assert {m.params["ranks"] for m in record.measurements} == {2}
    facts = record.run.imported_from
    assert facts is not None
    assert facts["tool_version"] == "2.17.6"
    assert record.run.host_class == "imported: NVIDIA A30 × 2"


def test_several_tables_in_one_file_keep_their_operations(tmp_path: Path) -> None:
    other = NCCL_TEXT.replace("all_reduce_perf", "sendrecv_perf").replace("  sum ", " none ")
    record = read(tmp_path, "nccl-tests", NCCL_TEXT + other)
    assert {m.params["op"] for m in record.measurements} == {"all_reduce", "send_recv"}
    assert len(record.measurements) == 24


def test_a_repeated_size_becomes_another_sample(tmp_path: Path) -> None:
    again = ROWS_TEXT.splitlines(keepends=True)[0].replace("13.37", "14.37")
    record = read(tmp_path, "nccl-tests", HEAD_TEXT + ROWS_TEXT + again)
    assert pick(record, "time", in_place=False, size_bytes=1024).samples == [1.337e-05, 1.437e-05]


def test_an_old_table_without_program_name_needs_the_operation(tmp_path: Path) -> None:
    old = "".join(
        line
        for line in NCCL_TEXT.splitlines(keepends=True)
        if "starting" not in line and "version" not in line
    )
    with pytest.raises(UserError, match="--op"):
        read(tmp_path, "nccl-tests", old)
    record = read(tmp_path, "nccl-tests", old, given={"op": "all_reduce"})
    assert {m.params["op"] for m in record.measurements} == {"all_reduce"}


def test_osu_tables_keep_their_values_in_base_units(tmp_path: Path) -> None:
    record = read(tmp_path, "osu", OSU_TEXT, given={"ranks": 4})
    assert pick(record, "avg_latency", op="all_reduce", size_bytes=4).samples == [1.73e-06]
    assert pick(record, "min_latency", op="all_reduce", size_bytes=65536).samples == [3.644e-05]
    assert pick(record, "max_latency", op="all_reduce", size_bytes=65536).samples == [3.771e-05]
    bandwidth = pick(record, "bandwidth", op="MPI Bandwidth Test", size_bytes=4194304)
    assert bandwidth.samples == [11873090000.0]
    assert bandwidth.metric.unit == "B/s"
    rate = pick(record, "message_rate", pairs=4, window=64)
    assert rate.samples == [26593750.12]
    barrier = pick(record, "avg_latency", op="barrier")
    assert barrier.samples == [2.41e-06]
    assert "size_bytes" not in barrier.params
    latency = pick(record, "avg_latency", op="all_reduce", size_bytes=4)
    assert latency.correctness is not None
    assert latency.correctness["reported"] == {"iterations": 1000}
    assert latency.scale == {"ranks": 4}
    assert latency.params["datatype"] == "MPI_INT"


def test_osu_validation_that_failed_leaves_no_number(tmp_path: Path) -> None:
    text = (
        "# OSU MPI-CUDA Allreduce Latency Test v7.4\n"
        "# Size       Avg Latency(us)        Validation\n"
        "4                       1.73              Pass\n"
        "8                       1.81              Fail\n"
    )
    record = read(tmp_path, "osu", text)
    assert pick(record, "avg_latency", size_bytes=4).status == "ok"
    assert pick(record, "avg_latency", size_bytes=8).status == "incorrect"
    assert pick(record, "avg_latency", size_bytes=4).params["op"] == "all_reduce"


def test_osu_non_blocking_columns(tmp_path: Path) -> None:
    text = (
        "# OSU MPI Non-blocking Allreduce Latency Test v7.4\n"
        "# Overall = Coll. Init + Compute + MPI_Test + MPI_Wait\n\n"
        "# Size           Overall(us)       Compute(us)    Pure Comm.(us)        Overlap(%)\n"
        "4                       5.30              3.11              2.95             25.76\n"
    )
    record = read(tmp_path, "osu", text)
    assert pick(record, "overlap").samples == [0.2576]
    assert pick(record, "pure_comm").samples == [2.95e-06]
    assert len(record.measurements) == 4


def test_pytest_benchmark_rounds_are_kept_bit_for_bit(tmp_path: Path) -> None:
    record = read(tmp_path, "pytest-benchmark", pytest_json())
    (m,) = record.measurements
    assert m.samples == [0.1 + 0.2, 1e-9, 0.00123456789012345]
    assert m.value == 0.00123456789012345
    assert m.label == "tests/test_sum.py::test_sum[10]"
    assert m.params["op"] == "test_sum[10]"
    assert m.params["n"] == 10
    assert m.params["scale"] == 0.5
    assert m.params["shape"] == "[2, 3]"
    assert m.params["group"] == "sums"


def test_a_summary_without_rounds_is_kept_as_a_summary(tmp_path: Path) -> None:
    document = pytest_json()
    del document["benchmarks"][0]["stats"]["data"]
    record = read(tmp_path, "pytest-benchmark", document)
    assert {m.metric.name for m in record.measurements} == {
        "reported_mean",
        "reported_median",
        "reported_min",
        "reported_max",
    }
    assert pick(record, "reported_mean").samples == [0.10041152263]
    assert all("summary-only" in m.flags for m in record.measurements)


NCCL_LINES = len(HEAD_TEXT.splitlines())


@pytest.mark.parametrize(
    ("style", "content", "message"),
    [
        ("nccl-tests", "", "holds no result"),
        ("nccl-tests", HEAD_TEXT, "holds no result"),
        ("nccl-tests", "1024 256 float sum -1 1 1 1 0 1 1 1 0\n", r"given.txt:1: .* before any header"),
        (
            "nccl-tests",
            HEAD_TEXT + "Segmentation fault\n",
            rf"no result of nccl-tests \(the program failed: line {NCCL_LINES + 1}: Segmentation fault",
        ),
        ("nccl-tests", HEAD_TEXT + "what is this\n", rf"given.txt:{NCCL_LINES + 1}: 3 columns"),
        (
            "nccl-tests",
            HEAD_TEXT + ROWS_TEXT.replace("13.37", "13.3x"),
            rf"given.txt:{NCCL_LINES + 1}:time: '13.3x'",
        ),
        ("nccl-tests", HEAD_TEXT + ROWS_TEXT.replace("13.37", "  inf"), "not a finite number"),
        ("nccl-tests", HEAD_TEXT + ROWS_TEXT.replace("13.37", "-3.37"), "a negative time"),
        ("nccl-tests", HEAD_TEXT + ROWS_TEXT.replace("1048576  ", "1048_576 "), "size '1048_576'"),
        ("nccl-tests", NCCL_TEXT.replace("algbw   busbw", "speed   busbw"), "unknown columns"),
        ("nccl-tests", "# paceline {broken\n", "given.txt:1: unreadable line"),
        ("nccl-tests", '{"version": 1', "given.txt:1: not JSON"),
        ("nccl-tests", '{"version": 1}', "no 'results'"),
        ("nccl-tests", nccl_json() | {"version": 4}, "version is 4"),
        ("nccl-tests", nccl_json(size="big"), r"given.txt:1:results\[0\].size"),
        ("nccl-tests", nccl_json(out_of_place={"time": "fast"}), r"results\[0\].out_of_place.time"),
        ("nccl-tests", nccl_json(out_of_place=None, in_place=None), "neither out_of_place nor in_place"),
        ("nccl-tests", '{"version": 1, "version": 1, "results": []}', "second time"),
        ("nccl-tests", '{"version": 1, "results": []} x', "after the end"),
        (
            "nccl-tests",
            nccl_json(size=float("nan")),
            r"given.txt:1:results\[0\].size: missing, or not a whole",
        ),
        (
            "nccl-tests",
            nccl_json(out_of_place={"time": float("inf")}),
            r"results\[0\].out_of_place.time: Infinity is not a finite number",
        ),
        ("osu", "4 1.73\n", "given.txt:1: .* before any title"),
        ("osu", OSU_TEXT.replace("37.08", "37.08 x"), "given.txt:6: 6 columns"),
        ("osu", OSU_TEXT.replace("37.08", "fast "), "given.txt:6:.*'fast'"),
        ("osu", OSU_TEXT.replace("Min Latency(us)", "Wow Latency(us)"), "given.txt:4: unknown column"),
        ("osu", "# OSU MPI Latency Test v7.4\n4 1.0\n", "given.txt:2: a result before the header"),
        ("pytest-benchmark", "[]", "given.txt:1: not JSON"),
        ("pytest-benchmark", "{}", "no 'benchmarks'"),
        ("pytest-benchmark", pytest_json(rounds=4), "3 rounds, but 'rounds' says 4"),
        ("pytest-benchmark", pytest_json(data=[]), "not a list of rounds"),
        ("pytest-benchmark", pytest_json(data=[1, "2"], rounds=2), r"data\[1\]"),
        ("pytest-benchmark", pytest_json(data=[-1.0], rounds=1), "a negative round_time"),
        ("pytest-benchmark", '{"benchmarks": ' + "[" * 100000, "not"),
        ("pytest-benchmark", json.dumps(pytest_json()).replace("test_sum[10]", "\\ud800"), "a record cannot"),
        (
            "pytest-benchmark",
            json.dumps(pytest_json()).replace('"scale": 0.5', '"scale": 1e999'),
            "a record cannot",
        ),
        (
            "pytest-benchmark",
            pytest_json(data=[float("inf")], rounds=1),
            r"data\[0\]: Infinity is not a finite",
        ),
        ("pytest-benchmark", '{"benchmarks": [{"name": "a", "stats": {"x": 1, "x": 2}}]}', "stands twice"),
    ],
)
def test_a_malformed_file_is_refused_with_its_place_and_leaves_no_record(
    tmp_path: Path, style: str, content: str | dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        read(tmp_path, style, content)
    assert not list(tmp_path.rglob("*.jsonl*"))


def test_the_line_of_a_bad_benchmark_is_named(tmp_path: Path) -> None:
    document = pytest_json()
    document["benchmarks"].append({"name": "test_broken"})
    text = json.dumps(document, indent=4)
    line = next(i for i, t in enumerate(text.splitlines(), start=1) if "test_broken" in t) - 1
    with pytest.raises(UserError, match=rf"given.txt:{line}:benchmarks\[1\].stats"):
        read(tmp_path, "pytest-benchmark", text)


def test_launches_that_do_not_add_up_are_refused(tmp_path: Path) -> None:
    document = pytest_json()
    own = {"technique": "ring", "metric": "latency", "suite": "s", "launch_samples": {"0": 1, "1": 1}}
    document["benchmarks"][0]["extra_info"] = {"paceline": own}
    with pytest.raises(UserError, match="adds up to 2, not to 3"):
        read(tmp_path, "pytest-benchmark", document)


def test_binary_rubbish_is_not_text(tmp_path: Path) -> None:
    source = tmp_path / "given.bin"
    source.write_bytes(b"# fine\n\xff\xfe\x00")
    with pytest.raises(UserError, match=r"given\.bin:2: not UTF-8"):
        import_file(tmp_path / "store", source, "osu")


def test_an_imported_number_cannot_claim_an_oracle_and_a_number_of_ours_needs_one(tmp_path: Path) -> None:
    record = read(tmp_path, "osu", OSU_TEXT)
    line = json.loads(record.measurements[0].model_dump_json())
    with pytest.raises(ValidationError, match="cannot claim"):
        parse_line(json.dumps(line | {"correctness": {"passed": True}}))
    with pytest.raises(ValidationError, match="only kept when the oracle passed"):
        parse_line(json.dumps(line | {"family": "collectives"}))


def test_the_imported_family_can_not_be_measured_and_stays_off_lists() -> None:
    family = load_family(IMPORTED)
    assert family.internal
    assert family.check({"op": "all_reduce"})
    ours = {contract_id("collectives", m) for m in load_family("collectives").metrics}
    assert not ours & {contract_id("imported", m) for m in family.metrics}
    assert len({contract_id("imported", m) for m in family.metrics}) == len(family.metrics)


def test_the_command_imports_the_good_files_names_the_bad_one_and_refuses_a_second_time(
    tmp_path: Path,
) -> None:
    good, bad = tmp_path / "good.txt", tmp_path / "bad.txt"
    good.write_text(OSU_TEXT)
    bad.write_text("rubbish\n")
    store = ["--results", str(tmp_path / "store")]
    outcome = CliRunner().invoke(application, ["import", "osu", str(good), str(bad), *store])
    assert isinstance(outcome.exception, UserError)
    assert "bad.txt:1" in str(outcome.exception)
    assert "imported from" in outcome.output
    again = CliRunner().invoke(application, ["import", "osu", str(good), *store])
    assert "already imported" in str(again.exception)
    forced = CliRunner().invoke(application, ["import", "osu", str(good), "--again", "--json", *store])
    assert forced.exit_code == 0
    assert json.loads(forced.output)[0]["without_number"] == 0


@given(
    st.integers(min_value=0, max_value=10**8),
    st.integers(min_value=0, max_value=10**6 - 1),
    st.sampled_from([MICRO, GIGA]),
)
def test_scaling_rounds_once(whole: int, fraction: int, power: int) -> None:
    text = f"{whole}.{fraction:06d}"
    found = number(text, power, "us", "here").base
    assert found is not None
    exact = Decimal(text) * Decimal(10) ** power
    assert found == float(exact)
    assert f"{Decimal(repr(found)).scaleb(-power):.6f}" == text


@given(st.text(max_size=60))
def test_no_text_makes_a_parser_fail_with_anything_but_a_user_error(text: str) -> None:
    from paceline.records.imports.formats import FORMATS, parse

    for style in FORMATS:
        for content in (
            text,
            "# OSU MPI Latency Test v1\n# Size Latency (us)\n" + text,
            HEAD_TEXT + text,
            "{" + text,
        ):
            try:
                parse(style, content, "given.txt", {})
            except UserError as error:
                assert "given.txt" in str(error)
