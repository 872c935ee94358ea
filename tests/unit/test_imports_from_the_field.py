"""Files of other tools as people have them: newer layouts, launchers' lines, groups, failures, data as parameters."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from test_imports import HEAD_TEXT, NCCL_TEXT, OSU_TEXT, ROWS_TEXT, nccl_json, pick, pytest_json, read
from test_site import render

from paceline.base.errors import UserError
from paceline.cli import application
from paceline.records.imports.launchers import own_lines
from paceline.records.store.folder import RunRecord

COLUMNS = "time   algbw   busbw  #wrong"
ITERATION_COLUMNS = f"{COLUMNS}   i_min   i_max   i_p99   i_cv%"


def imported(record: RunRecord) -> dict[str, Any]:
    assert record.run.imported_from is not None
    return record.run.imported_from


def per_iteration(times: list[float], skipped: int = 0) -> dict[str, Any]:
    return {
        "skipped_iterations": skipped,
        "min_us": min(times),
        "avg_us": 7.0,
        "p99_us": max(times),
        "times_us": times,
        "per_process_max_times_us": [times, times],
    }


@pytest.mark.parametrize("version", [2, 3])
def test_nccl_json_of_later_versions_keeps_every_iteration_as_a_sample(tmp_path: Path, version: int) -> None:
    counted = {"skipped": 2} if version == 3 else {}
    sides = {
        "out_of_place_per_iter": per_iteration([31.5, 12.25, 9.5, 9.75], **counted),
        "in_place_per_iter": per_iteration([8.0, 8.5]),
    }
    if version == 2:
        for side in sides.values():
            del side["skipped_iterations"]
    record = read(tmp_path, "nccl-tests", {**nccl_json(**sides), "version": version})
    out = pick(record, "iteration_time", in_place=False)
    assert out.samples == ([9.5e-06, 9.75e-06] if version == 3 else [3.15e-05, 1.225e-05, 9.5e-06, 9.75e-06])
    assert out.correctness is not None
    assert out.correctness["reported"]["skipped_iterations"] == counted.get("skipped", 0)
    assert out.correctness["reported"]["summary"]["avg_us"] == "7.0"
    assert pick(record, "iteration_time", in_place=True).samples == [8e-06, 8.5e-06]
    assert pick(record, "time", in_place=False).samples == [4.1327614e-05]
    assert any("per_process_max_times_us" in text for text in imported(record)["not_kept"])


def test_iterations_of_a_wrong_result_are_no_numbers_and_bad_lists_are_refused(tmp_path: Path) -> None:
    wrong = {"time": 1.0, "alg_bw": 1.0, "bus_bw": 1.0, "nwrong": 4.0}
    record = read(
        tmp_path,
        "nccl-tests",
        nccl_json(in_place=wrong, in_place_per_iter=per_iteration([1.0, 2.0])) | {"version": 3},
    )
    failed = pick(record, "iteration_time", in_place=True)
    assert (failed.status, failed.samples) == ("incorrect", [])
    for bad, message in (
        (per_iteration([1.0, 2.0], 2), r"out_of_place_per_iter.times_us: not a list of times beyond"),
        ({**per_iteration([1.0]), "times_us": None}, "not a list of times"),
        (per_iteration([1.0, math.inf]), r"times_us\[1\]: Infinity is not a finite number"),
        (per_iteration([-1.0]), "a negative iteration_time"),
    ):
        with pytest.raises(UserError, match=message):
            read(tmp_path, "nccl-tests", nccl_json(out_of_place_per_iter=bad) | {"version": 3})


def wider(row: str, *cells: str) -> str:
    """Return a row of the table with the columns of ``-I 1`` behind each half."""
    words = row.split()
    return "  ".join(["", *words[:9], *cells, *words[9:13], *cells, *words[13:]]) + "\n"


@pytest.mark.parametrize("timestamp", ["", " timestamp"])
def test_nccl_text_with_single_iterations_keeps_their_summary(tmp_path: Path, timestamp: str) -> None:
    head = HEAD_TEXT.replace(
        f"{COLUMNS}     {COLUMNS}", f"{ITERATION_COLUMNS}  {ITERATION_COLUMNS}{timestamp}"
    )
    assert head != HEAD_TEXT
    stamp = "  2026-07-11 12:00:00" if timestamp else ""
    rows = [wider(line + stamp, "11.50", "19.75", "18.25", "4.50") for line in ROWS_TEXT.splitlines()[:2]]
    record = read(tmp_path, "nccl-tests", head + "".join(rows))
    assert pick(record, "iteration_min", in_place=False, size_bytes=1024).samples == [1.15e-05]
    assert pick(record, "iteration_max", in_place=True, size_bytes=1024).samples == [1.975e-05]
    assert pick(record, "iteration_p99", in_place=False, size_bytes=1024).samples == [1.825e-05]
    assert pick(record, "iteration_cv", in_place=False, size_bytes=1024).samples == [0.045]
    assert pick(record, "time", in_place=True, size_bytes=1024).samples == [1.291e-05]
    assert pick(record, "iteration_min", in_place=True, size_bytes=1048576).status == "incorrect"
    with pytest.raises(UserError, match="12 columns"):
        read(tmp_path, "nccl-tests", head.replace(" timestamp", "") + ROWS_TEXT.splitlines()[0][:-2])
    with pytest.raises(UserError, match="unknown columns"):
        read(tmp_path, "nccl-tests", head.replace("i_p99", "i_p98") + rows[0])


PREFIXES = [
    "[1,0]<stdout>:",
    "[1,0]<stdout>: ",
    "[1,0]:",
    "[prterun-node-a-4711@1,0]<stdout>: ",
    "[1,mpirank:0,algo-1]<stdout>:",
    "[0] ",
    "0: ",
    "00: ",
    "[rank0]: ",
    "[default0]:",
    "2026-07-11T10:00:00.123456789Z ",
    "2026-07-11T10:00:00Z [1,0]<stdout>:",
]


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize(("style", "text"), [("nccl-tests", NCCL_TEXT), ("osu", OSU_TEXT)])
def test_a_ranks_prefix_is_taken_off_every_line_and_counted(
    tmp_path: Path, style: str, text: str, prefix: str
) -> None:
    plain = read(tmp_path, style, text)
    prefixed = read(tmp_path, style, "".join(prefix + line + "\n" for line in text.splitlines()))
    shown = [(m.metric.name, m.params, m.samples, m.status) for m in plain.measurements]
    assert [(m.metric.name, m.params, m.samples, m.status) for m in prefixed.measurements] == shown
    assert imported(prefixed)["notes"] == [f"a rank's prefix taken off {len(text.splitlines())} lines"]
    assert "notes" not in imported(plain)
    assert "skipped" not in imported(plain)


NOISE = {
    "NCCL's log": (
        "gpu-7:310:355 [2] NCCL INFO Bootstrap : Using eth0:10.0.0.7<0>",
        "gpu-7:310:355 [2] misc/socket.cc:484 NCCL WARN socketStartConnect: Connect to 10.0.0.8<4711> failed",
        "[2026-07-11 10:00:00] gpu-7:310:355 [0] NCCL INFO comm 0x55 rank 0 nranks 2",
        "10-0-0-7:22:28 [0] RCCL INFO Kernel version: 6.8",
    ),
    "versions of libraries": (
        "NCCL version 2.29.3+cuda13.0",
        "RCCL version : 2.22.3-HEAD:9a0f",
        "HIP version  : 6.3",
    ),
    "Open MPI's notices": (
        "[gpu-7:00310] 3 more processes have sent help message help-mpi-btl-openib.txt",
        "--------------------------------------------------------------------------",
        "WARNING: There was an error initializing an OpenFabrics device.",
        "  Local host: gpu-7",
        "--------------------------------------------------------------------------",
    ),
    "Slurm's notices": ("srun: job 4711 queued and waiting for resources",),
    "ssh's notices": ("Warning: Permanently added 'gpu-8' (ED25519) to the list of known hosts.",),
    "standard error of ranks": ("[1,1]<stderr>:some library is loud",),
}


@pytest.mark.parametrize(("kind", "lines"), NOISE.items())
@pytest.mark.parametrize(("style", "text"), [("nccl-tests", NCCL_TEXT), ("osu", OSU_TEXT)])
def test_lines_of_libraries_and_launchers_are_left_out_counted_and_named(
    tmp_path: Path, style: str, text: str, kind: str, lines: tuple[str, ...]
) -> None:
    plain = read(tmp_path, style, text)
    written = text.splitlines()
    noisy = "\n".join([*lines, *written[:-2], *lines, *written[-2:], *lines]) + "\n"
    record = read(tmp_path, style, noisy)
    assert imported(record)["skipped"] == {kind: 3 * len(lines)}
    assert [(m.params, m.samples) for m in record.measurements] == [
        (m.params, m.samples) for m in plain.measurements
    ]


def test_the_command_and_the_page_of_a_run_say_what_was_left_out(tmp_path: Path) -> None:
    source = tmp_path / "noisy.txt"
    source.write_text("NCCL version 2.29.3+cuda13.0\n" + NCCL_TEXT)
    arguments = ["import", "nccl-tests", str(source), "--results", str(tmp_path / "store")]
    shown = CliRunner().invoke(application, arguments, catch_exceptions=False)
    assert "lines left out: 1 of versions of libraries" in shown.output
    told = CliRunner().invoke(application, [*arguments, "--json", "--again"], catch_exceptions=False)
    assert json.loads(told.output)[0]["skipped"] == {"versions of libraries": 1}
    files = render(read(tmp_path, "nccl-tests", "[1,0]<stdout>:NCCL version 2\n" + NCCL_TEXT))
    (page,) = [text for name, text in files.items() if name.startswith("runs/")]
    words = " ".join(re.sub(r"<[^>]+>", " ", page).split())
    assert "Imported from" in words
    assert "skipped.versions of libraries 1" in words


def test_a_line_that_nobody_is_known_to_write_is_refused_and_a_lone_rule_hides_nothing(
    tmp_path: Path,
) -> None:
    rule = "-" * 40 + "\n"
    for line in ("hello", "gpu-7: something", "WARNING: unknown", "8 rows follow"):
        with pytest.raises(UserError, match=r"columns?"):
            read(tmp_path, "nccl-tests", NCCL_TEXT + line + "\n")
    record = read(tmp_path, "nccl-tests", HEAD_TEXT + rule + ROWS_TEXT + rule)
    assert len(record.measurements) == 12
    assert imported(record)["skipped"] == {"Open MPI's notices": 2}
    with pytest.raises(UserError, match="NCCL_DEBUG_FILE"):
        row = ROWS_TEXT.splitlines()[0]
        read(tmp_path, "nccl-tests", HEAD_TEXT + row[:62] + "gpu-7:310:355 [2] NCCL INFO Channel\n")


def test_tables_of_several_programs_in_one_file_are_not_mixed(tmp_path: Path) -> None:
    lines = OSU_TEXT.splitlines()
    mixed = "".join(f"[1,0]<stdout>:{line}\n[1,1]<stdout>:{line}\n" for line in lines)
    with pytest.raises(UserError, match="ranks 0 and 1 both write tables") as caught:
        read(tmp_path, "osu", mixed)
    assert caught.value.where == f"{tmp_path / 'given.txt'}:4"
    rank = NCCL_TEXT.splitlines()[5]
    assert "Rank  0" in rank
    with pytest.raises(UserError, match=r"rank 0 is listed twice.*without MPI"):
        read(tmp_path, "nccl-tests", NCCL_TEXT.replace(rank, f"{rank}\n{rank}"))


@pytest.mark.parametrize(
    ("groups", "expected", "note"),
    [
        ([0, 0, 0, 0], {"ranks": 4}, []),
        ([0, 1, 0, 1], {"ranks": 2, "groups": 2}, []),
        ([0, 0, 1, 1], {"ranks": 2, "groups": 2}, []),
        ([0, 1, 2, 3], {"ranks": 1, "groups": 4}, []),
        (
            [0, 0, 0, 1],
            {"ranks": 3, "groups": 2},
            ["groups of 1, 3 ranks; 'ranks' is that of rank 0's group"],
        ),
    ],
)
def test_ranks_are_those_of_a_group_where_the_tool_splits_them(
    tmp_path: Path, groups: list[int], expected: dict[str, int], note: list[str]
) -> None:
    found = [line for line in HEAD_TEXT.splitlines() if "Rank " in line]
    listed = [
        found[0].replace("Rank  0", f"Rank {i:2d}").replace("Group  0", f"Group {g:2d}")
        for i, g in enumerate(groups)
    ]
    text = HEAD_TEXT.replace("\n".join(found), "\n".join(listed)) + ROWS_TEXT
    made = nccl_json()
    made["config"] |= {"ngpus": 1}
    device = made["config"]["devices"][0]
    made["config"]["devices"] = [{**device, "rank": i, "group": g} for i, g in enumerate(groups)]
    for record in (read(tmp_path, "nccl-tests", text), read(tmp_path, "nccl-tests", made)):
        for m in record.measurements:
            assert {k: m.params[k] for k in ("ranks", "groups") if k in m.params} == expected
        # the rows are those of two ranks: of others the bus bandwidth does not fit
        assert [n for n in imported(record).get("notes", []) if " × absent: busbw" not in n] == note
        assert str(record.run.host_class).endswith("× 4"), "a machine's devices, not a group's"


@pytest.mark.parametrize(
    ("threads", "gpus", "listed", "ranks", "split"),
    [
        (1, 8, [0], 8, None),
        (2, 2, [0], 4, None),
        (1, 2, [0, 2, 4], 6, None),
        (1, 4, [0, 1, 2, 3], 4, None),
        (1, 2, [0, 2, 4, 6], 4, 2),
    ],
)
def test_ranks_are_counted_although_the_json_lists_one_device_of_a_process(
    tmp_path: Path, threads: int, gpus: int, listed: list[int], ranks: int, split: int | None
) -> None:
    made = nccl_json()
    device = made["config"]["devices"][0]
    made["config"] |= {
        "nthreads": threads,
        "ngpus": gpus,
        "devices": [{**device, "rank": r, "group": i % split if split else 0} for i, r in enumerate(listed)],
    }
    params = pick(read(tmp_path, "nccl-tests", made), "time", in_place=False).params
    assert (params["ranks"], params.get("groups")) == (ranks, split)


@pytest.mark.parametrize(
    ("changed", "devices", "ranks", "notes"),
    [
        ({}, [{"rank": 0, "group": 0}], 8, []),
        ({"ngpus": None}, [{"rank": 0}, {"rank": 1}], 2, ["'ngpus' is null: 1 was taken for it"]),
        ({"nthreads": "2"}, [{"rank": 0}], 8, ["'nthreads' is \"2\": 1 was taken for it"]),
        (
            {"ngpus": 1},
            [{}, {"rank": 1, "group": 0}],
            2,
            [
                "1 device tells no rank: their places in the list were taken for it",
                "1 device tells no group: 0 was taken for it",
            ],
        ),
    ],
)
def test_what_ranks_were_guessed_from_is_told(
    tmp_path: Path, changed: dict[str, Any], devices: list[dict[str, Any]], ranks: int, notes: list[str]
) -> None:
    made = nccl_json()
    info = {"device_info": made["config"]["devices"][0]["device_info"]}
    made["config"] |= {"nthreads": 1, "ngpus": 8, **changed, "devices": [{**info, **d} for d in devices]}
    record = read(tmp_path, "nccl-tests", made)
    assert pick(record, "time", in_place=False).params["ranks"] == ranks
    assert [n for n in imported(record).get("notes", []) if "taken for it" in n] == notes


def test_a_group_and_a_parameter_of_that_name_are_both_kept(tmp_path: Path) -> None:
    made = pytest_json()
    made["benchmarks"][0] |= {"group": "sums", "params": {"group": 3}}
    (params,) = {
        json.dumps(m.params, sort_keys=True) for m in read(tmp_path, "pytest-benchmark", made).measurements
    }
    assert json.loads(params).items() >= {"group": 3, "group of the benchmark": "sums"}.items()


def test_an_older_table_without_groups_has_its_ranks(tmp_path: Path) -> None:
    record = read(tmp_path, "nccl-tests", NCCL_TEXT.replace("Group  0 ", ""))
    assert {(m.params["ranks"], m.params.get("groups")) for m in record.measurements} == {(2, None)}


FAILED_OSU = (
    "# OSU MPI Broadcast Latency Test v7.4\n# Size       Avg Latency(us)        Validation\n"
    "4  2.50  Pass\n8  2.75  Pass\n32  3.25  Fail\n"
)
NOTICE = (
    "-" * 60
    + "\nPrimary job terminated normally, but 1 process returned\na non-zero exit code.\n"
    + "-" * 60
    + "\n"
)


@pytest.mark.parametrize(
    ("end", "said"),
    [
        (
            "DATA VALIDATION ERROR: /home/me/omb/osu_bcast exited with status 1 on message size 32.\n"
            + NOTICE,
            "line 6: DATA VALIDATION ERROR: osu_bcast exited with status 1 on message size 32., and 1 line more",
        ),
        (NOTICE, "line 8: mpirun: a process ended with an error"),
        (
            "srun: error: gpu-7: task 1: Segmentation fault (core dumped)\n",
            "line 6: srun: error: gpu-7: task 1",
        ),
        ("/bin/run: line 3:  4711 Killed\n", "line 6: Killed"),
    ],
)
def test_rows_before_a_failure_are_kept_and_the_failure_is_told(tmp_path: Path, end: str, said: str) -> None:
    record = read(tmp_path, "osu", FAILED_OSU + end)
    assert pick(record, "avg_latency", size_bytes=4).samples == [2.5e-06]
    assert pick(record, "avg_latency", size_bytes=8).samples == [2.75e-06]
    assert pick(record, "avg_latency", size_bytes=32).status == "incorrect"
    (note,) = imported(record)["notes"]
    assert said in note
    assert note.endswith("rows before it are kept")
    assert "/home/me" not in note


def test_a_row_that_a_failure_cut_short_is_left_out_and_told(tmp_path: Path) -> None:
    first, second = ROWS_TEXT.splitlines()[:2]
    failure = (
        "gpu-7: Test NCCL failure common.cu:461 'unhandled system error'\n"
        " .. gpu-7 pid 310: Test failure common.cu:585\n"
    )
    record = read(tmp_path, "nccl-tests", HEAD_TEXT + first + "\n" + second[:62] + failure)
    assert {m.params["size_bytes"] for m in record.measurements} == {1024}
    cut, failed = imported(record)["notes"]
    line = len(HEAD_TEXT.splitlines()) + 2
    assert cut == f"line {line}: a row that the failure cut short is left out"
    assert failed.startswith(f"the program failed: line {line}: Test NCCL failure common.cu:461")
    assert "1 line more" in failed


def test_osu_in_python_has_columns_of_its_own_names(tmp_path: Path) -> None:
    text = (
        "# OMB Python MPI Allreduce Test\n# Size (B)      Latency (us)\n64                     5.50\n"
        "# OMB Python MPI Latency Test\n# Size (B)      Latency (us)\n128                     6.25\n"
        "# OMB Python MPI Iallreduce Test\n# Size           Overall(us)       Compute(us)    Pure Comm.(us)"
        "        Overlap(%)      Wait avg(us)      Init avg(us)\n8  9.00  4.00  4.50  12.50  1.25  0.75\n"
    )
    record = read(tmp_path, "osu", text, given={"ranks": 2})
    assert pick(record, "avg_latency", op="all_reduce", size_bytes=64).samples == [5.5e-06]
    assert pick(record, "avg_latency", op="Python MPI Latency Test", size_bytes=128).samples == [6.25e-06]
    assert pick(record, "mpi_wait").samples == [1.25e-06]
    assert pick(record, "coll_init").samples == [7.5e-07]
    assert pick(record, "overlap").samples == [0.125]


def renamed(fullname: str, *, data: list[float]) -> dict[str, Any]:
    (found,) = pytest_json(data=data, rounds=len(data))["benchmarks"]
    return {**found, "name": fullname.rpartition("::")[2], "fullname": fullname}


def test_benchmarks_of_one_name_in_two_modules_or_classes_are_two(tmp_path: Path) -> None:
    names = [
        "tests/test_a.py::test_read",
        "tests/test_b.py::test_read",
        "tests/test_b.py::TestFast::test_read",
    ]
    document = pytest_json() | {
        "benchmarks": [renamed(n, data=[10.0 ** -(i + 2)]) for i, n in enumerate(names)]
    }
    record = read(tmp_path, "pytest-benchmark", document)
    assert {m.label: m.samples for m in record.measurements} == dict(
        zip(names, ([0.01], [0.001], [0.0001]), strict=True)
    )
    assert len({m.series_key for m in record.measurements}) == 3
    assert "notes" not in imported(record)


def test_a_benchmark_that_occurs_again_is_further_samples_and_that_is_told(tmp_path: Path) -> None:
    again = [renamed("tests/test_a.py::test_read", data=[t]) for t in (0.5, 0.25)]
    record = read(tmp_path, "pytest-benchmark", pytest_json() | {"benchmarks": again})
    (m,) = record.measurements
    assert m.samples == [0.5, 0.25]
    assert imported(record)["notes"] == [
        "1 result occurs again in the file: further samples of the same measurement"
    ]


def test_what_is_not_read_does_not_matter(tmp_path: Path) -> None:
    document = pytest_json()
    document["machine_info"]["load"] = math.nan
    (benchmark,) = document["benchmarks"]
    benchmark["extra_info"] = {"accuracy": math.nan, "best": math.inf, "worst": -math.inf, "count": 10**3000}
    benchmark["stats"]["ops"] = math.inf
    text = json.dumps(document).replace('"accuracy"', '"twice": 1, "twice": 2, "accuracy"')
    (m,) = read(tmp_path, "pytest-benchmark", text).measurements
    assert m.samples == [0.1 + 0.2, 1e-9, 0.00123456789012345]
    (m,) = read(tmp_path, "pytest-benchmark", pytest_json(data=[1.0, math.nan], rounds=2)).measurements
    assert (m.status, m.samples) == ("invalid", []), "where it is read it is no number"


def test_long_parameters_and_names_are_kept_by_their_digest(tmp_path: Path) -> None:
    document = pytest_json()
    (benchmark,) = document["benchmarks"]
    blobs = ["x" * 20_000_000, "x" * 19_999_999 + "y"]
    document["benchmarks"] = [
        {
            **benchmark,
            "name": f"test_sum[{blob}]",
            "fullname": f"tests/test_sum.py::test_sum[{blob}]",
            "params": {"blob": blob, "items": [blob[:500]], "short": "z" * 300},
            "group": None,
        }
        for blob in blobs
    ]
    record = read(tmp_path, "pytest-benchmark", document)
    first, second = record.measurements
    assert first.label != second.label
    assert first.params["blob"] != second.params["blob"]
    assert str(first.params["blob"]).endswith(", 20000000 characters)")
    assert first.params["short"] == "z" * 300
    assert record.path.stat().st_size < 10_000
    (note,) = imported(record)["notes"]
    assert note == "8 texts of more than 300 characters are kept by their digest: name, fullname, blob, items"


def test_own_lines_keep_their_numbers() -> None:
    found = own_lines("\nNCCL version 2\n# a\n\n  8 1\n", "x")
    assert found.lines == [(3, "# a"), (5, "  8 1")]


def table(*rows: str, ranks: int = 2, columns: str = COLUMNS, below: str = "") -> str:
    """Return a table of all-reduce for so many ranks."""
    listed = [line for line in HEAD_TEXT.splitlines() if "Rank " in line]
    head = HEAD_TEXT.replace("\n".join(listed), "\n".join(listed[:ranks])).replace(COLUMNS, columns)
    return head + "".join(f"{row}\n" for row in rows) + below


def values(record: RunRecord, metric: str) -> list[float | None]:
    return [m.value for m in record.measurements if m.metric.name == metric]


def test_a_bandwidth_that_its_column_rounds_away_comes_from_size_and_time(tmp_path: Path) -> None:
    row = "16 4 float sum -1 {:.2f} 0.00 0.00 0 20.00 0.00 0.00 0"
    slow, fast = (
        read(tmp_path / name, "nccl-tests", table(row.format(us))) for name, us in (("a", 40), ("b", 20))
    )
    assert values(slow, "algbw") == pytest.approx([16 / 40e-6, 16 / 20e-6])
    assert values(fast, "busbw") == pytest.approx([16 / 20e-6, 16 / 20e-6])
    out = pick(slow, "algbw", in_place=False)
    assert out.flags == ["imported", "from-size-and-time"]
    assert out.detail == {"as_written": ["0.00"], "unit": "GB/s"}


def test_a_cell_of_two_digits_is_coarse_and_one_of_three_is_not(tmp_path: Path) -> None:
    row = "1024 256 float sum -1 95.00 0.01 0.01 0 0.30 3.41 3.41 0"
    record = read(tmp_path, "nccl-tests", table(row))
    assert values(record, "algbw") == pytest.approx([1024 / 95e-6, 3.41e9])
    assert [m.flags for m in record.measurements if m.metric.name == "algbw"][1] == ["imported"]


def test_the_bus_bandwidth_of_one_rank_is_not_defined(tmp_path: Path) -> None:
    row = "1048576 262144 float sum -1 10.00 104.86 0.00 0 10.00 104.86 0.00 0"
    record = read(tmp_path, "nccl-tests", table(row, ranks=1))
    assert values(record, "busbw") == []
    assert values(record, "algbw") == [104.86e9, 104.86e9]
    absent = {"busbw": "the bus bandwidth of one rank is not defined"}
    assert [m.absent for m in record.measurements if m.metric.name == "time"] == [absent, absent]
    assert imported(record)["notes"] == ["2 × absent: busbw: the bus bandwidth of one rank is not defined"]
    report = nccl_json()
    report["config"] |= {"ngpus": 1, "devices": report["config"]["devices"][:1]}
    assert values(read(tmp_path / "json", "nccl-tests", report), "busbw") == []


def test_a_coarse_cell_that_size_and_time_do_not_give_is_no_number(tmp_path: Path) -> None:
    row = "1048576 262144 float sum -1 10.00 0.00 0.00 0 10.00 104.86 104.86 0"
    record = read(tmp_path, "nccl-tests", table(row))
    assert values(record, "algbw") == [104.86e9]
    (absent,) = [m.absent for m in record.measurements if m.absent]
    assert absent["algbw"].startswith("0.00 GB/s is below the resolution")


def test_a_time_or_a_rate_of_zero_was_below_the_resolution(tmp_path: Path) -> None:
    text = OSU_TEXT.replace("                       1.73", "                       0.00").replace(
        "212.75", "  0.00"
    )
    record = read(tmp_path, "osu", text)
    refused = {m.metric.name: (m.status, m.reason) for m in record.measurements if m.status != "ok"}
    assert refused["avg_latency"] == ("invalid", "0.00 us: below the resolution of what the tool writes")
    assert refused["bandwidth"] == ("invalid", "0.00 MB/s: below the resolution of what the tool writes")
    assert len(refused) == 2


def test_some_samples_of_zero_are_marked_and_all_of_them_are_no_number(tmp_path: Path) -> None:
    some = read(tmp_path / "some", "pytest-benchmark", pytest_json(data=[0.0, 1e-9, 2e-9]))
    (m,) = [m for m in some.measurements if m.metric.name == "round_time"]
    assert m.status == "ok"
    assert "below-resolution" in m.flags
    none = read(tmp_path / "none", "pytest-benchmark", pytest_json(data=[0.0, 0.0, 0.0]))
    (m,) = [m for m in none.measurements if m.metric.name == "round_time"]
    assert (m.status, m.value) == ("invalid", None)


ERROR_ROWS = (
    "1024 256 float sum -1 13.37 0.08 0.08 0e+00 12.91 0.08 0.08 4e-07",
    "1048576 262144 float sum -1 101.40 10.34 10.34 1e+00 98.75 10.62 10.62 nan",
)


@pytest.mark.parametrize(("end", "status"), [("12 FAILED", "incorrect"), ("0 OK", "ok")])
def test_a_run_that_the_tool_calls_wrong_has_no_number(tmp_path: Path, end: str, status: str) -> None:
    """A column of deviations does not say which result is wrong; the line below the table says that some are."""
    columns = COLUMNS.replace("#wrong", " error")
    text = table(*ERROR_ROWS, columns=columns, below=f"# Out of bounds values : {end}\n")
    record = read(tmp_path, "nccl-tests", text)
    assert {m.status for m in record.measurements} == {status}
    if status == "incorrect":
        assert (
            record.measurements[0].reason
            == "nccl-tests calls the run wrong: Out of bounds values : 12 FAILED"
        )


def test_a_judgement_is_of_the_table_above_it_alone(tmp_path: Path) -> None:
    columns = COLUMNS.replace("#wrong", " error")
    good = table(ERROR_ROWS[0], columns=columns, below="# Out of bounds values : 0 OK\n")
    bad = table(ERROR_ROWS[1], columns=columns, below="# Out of bounds values : 2 FAILED\n")
    record = read(tmp_path, "nccl-tests", good + bad)
    assert {m.params["size_bytes"]: m.status for m in record.measurements} == {
        1024: "ok",
        1048576: "incorrect",
    }


def test_where_wrong_elements_are_counted_the_other_results_stand(tmp_path: Path) -> None:
    record = read(tmp_path, "nccl-tests", NCCL_TEXT)
    assert [m.status for m in record.measurements].count("incorrect") == 3
    report = nccl_json(out_of_place={"time": 4.0, "alg_bw": 262.1, "bus_bw": 458.8, "nwrong": None})
    report["out_of_bounds"] = {"count": 5, "okay": "false"}
    found = read(tmp_path / "json", "nccl-tests", report)
    assert {m.status for m in found.measurements} == {"incorrect"}


def test_tables_of_rccl_tests_are_read_and_its_own_files_are_refused_by_name(tmp_path: Path) -> None:
    first, rest = HEAD_TEXT.split("\n", 1)
    assert first.startswith("# nccl-tests version")
    said = "rccl-tests: Version develop:0f0f0f0\nRCCL version : 2.26.6-HEAD:0f0f0f0\n"
    text = rest.replace("# Using devices", f"{said}# Using devices") + ROWS_TEXT
    record = read(tmp_path, "nccl-tests", text)
    assert imported(record)["tool_version"] == "rccl-tests develop:0f0f0f0"
    assert len(record.measurements) == 12
    row = '{"#wrong":"0","algBw":0.05,"busBw":0.07,"gpus":4,"inPlace":0,"name":"AllReduce","size":1024,"time":19.2}'
    csv = "numCycle,collective,ranks,size,type,redop,inplace,time,algbw,busbw,#wrong\n"
    for content in (f"{row}\n{row}\n", f"[\n{row}\n]\n", csv):
        with pytest.raises(UserError, match="a file that rccl-tests wrote beside its table"):
            read(tmp_path, "nccl-tests", content)
