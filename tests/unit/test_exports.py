from __future__ import annotations

import csv
import io
import itertools
import json
import statistics
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import seeds
import yaml
from click.testing import CliRunner, Result
from pytest_benchmark.stats import Stats
from record_factory import make_run, measurement
from record_factory import write as write_record

from paceline.analysis.compare import compare_points
from paceline.analysis.points import grade_of, points_of
from paceline.analysis.runs import incomparable
from paceline.base.errors import UserError
from paceline.cli import application
from paceline.records.identity import record_id
from paceline.records.imports import import_file
from paceline.records.store.folder import RunRecord, read_record
from paceline.records.store.integrity import verify
from paceline.report.exports.choice import Choice
from paceline.report.exports.formats import CSV_COLUMNS, render, write
from paceline.report.exports.nccl_tests import fit
from paceline.report.exports.pytest_benchmark import document, summary
from paceline.stats.estimates import estimate_value
from paceline.workflows.conformance import run_suites

ALL = Choice()
OPERATIONS = ("all_reduce", "all_gather")
NAMES = {op: f"collectives/exchange-{op.replace('_', '-')}" for op in OPERATIONS}
SIZES = (4096, 1 << 20)


def made_up(root: Path) -> RunRecord:
    """Write a record of what a run of the same cases could have measured, and read it."""
    suite = make_run().suites[0]
    suites = [{**suite, "suite": name} for name in NAMES.values()]
    run = make_run(suites=suites)
    found = []
    for number, (op, size, label, launch, metric) in enumerate(
        itertools.product(OPERATIONS, SIZES, ("native", "ring"), range(2), ("latency", "wire_bytes"))
    ):
        drawn = [(1 + number) * 1e-4 * (1 + k / 7) for k in range(5 + launch)]
        block = f"{op}-{size}"
        found.append(
            measurement(
                run,
                label,
                launch,
                drawn if metric == "latency" else [float(size)],
                metric=metric,
                params={"op": op, "size_bytes": size},
                suite=NAMES[op],
                block=block,
                case_id=f"{block}-{label}",
                record_id=record_id("collectives", run.run_id, block, label, launch, metric),
            )
        )
    return read_record(write_record(root, run, found))


@pytest.fixture(scope="session", params=["made up", pytest.param("measured", marks=pytest.mark.full)])
def real(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> RunRecord:
    """A run of two operations, two techniques, two sizes, two ranks, two launches: as one would be, or one that is."""
    folder = tmp_path_factory.mktemp("exchange")
    if request.param == "made up":
        return made_up(folder / "results")
    paths = []
    for op in OPERATIONS:
        path = folder / f"{op.replace('_', '-')}.yaml"
        document = {
            "suite": NAMES[op],
            "version": 1,
            "family": "collectives",
            "why": "A run to export.",
            "workload": {"op": op},
            "baseline": "native",
            "techniques": ["native", "ring"],
            "matrix": {"size_bytes": list(SIZES), "ranks": [2]},
            "protocol": {
                "launches": 2,
                "warmup": "none",
                "min_samples": 5,
                "max_samples": 6,
                "max_seconds": 0.1,
                "kernel_calls": 0,
                "timeout": "60s",
            },
        }
        path.write_text(yaml.safe_dump(document))
        paths.append(path)
    record = run_suites(paths, folder=folder, seed=seeds.current())
    assert {m.status for m in record.measurements} == {"ok"}
    return record


def results_of(record: RunRecord) -> Path:
    return record.path.parents[2]


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(application, list(arguments), catch_exceptions=True)


def test_pytest_benchmark_compares_an_export_and_prints_the_mean_of_the_raw_samples(
    real: RunRecord, tmp_path: Path
) -> None:
    target, table = tmp_path / "0001_export.json", tmp_path / "table.csv"
    outcome = invoke(
        *("export", "pytest-benchmark", "--results", str(results_of(real)), "--output", str(target)),
        *("--metrics", "latency"),
    )
    assert outcome.exit_code == 0, outcome.output
    program = str(Path(sys.executable).with_name("pytest-benchmark"))
    compared = subprocess.run(
        [program, "compare", str(target), "--columns=mean,median,iqr,rounds", f"--csv={table}"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=tmp_path,
    )
    assert compared.returncode == 0, compared.stderr
    assert "ring[latency]" in compared.stdout
    assert "Failed to load" not in compared.stdout + compared.stderr
    printed = {row["name"]: row for row in csv.DictReader(table.open())}
    expected = {b["fullname"]: b for b in json.loads(target.read_text())["benchmarks"]}
    assert set(printed) == set(expected)
    assert len(printed) == 8
    for point in points_of(real):
        cell = point.cells[("ring", "latency")]
        samples = [s for launch in sorted(cell.samples) for s in cell.samples[launch]]
        name = next(
            b["fullname"]
            for b in expected.values()
            if b["params"] == dict(point.params) and b["name"] == "ring[latency]"
        )
        assert float(printed[name]["mean"]) == statistics.mean(samples)
        assert float(printed[name]["median"]) == statistics.median(samples)
        assert int(printed[name]["rounds"]) == len(samples)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 6, 7, 8, 13, 40])
def test_statistics_are_those_that_pytest_benchmark_computes(count: int) -> None:
    stats = Stats()
    samples = [((i * 7919) % 104729) / 1e5 + (9.0 if i == 5 else 0.0) for i in range(count)]
    for sample in samples:
        stats.update(sample)
    ours = summary(samples)
    for name in stats.fields:
        assert ours[name] == pytest.approx(getattr(stats, name)), name


def test_pytest_benchmark_export_and_import_keep_every_sample_of_every_launch(
    real: RunRecord, tmp_path: Path
) -> None:
    source = tmp_path / "export.json"
    source.write_bytes(render("pytest-benchmark", [real], ALL))
    back = import_file(tmp_path / "store", source, "pytest-benchmark")
    durations = [m for m in real.measurements if m.metric.unit == "s"]
    assert durations
    assert len(back.measurements) == len(durations)
    found = {
        (m.label, m.params["metric"], m.params["op"], m.params["size_bytes"], m.launch): m
        for m in back.measurements
    }
    for m in durations:
        twin = found[(m.label, m.metric.name, m.params["op"], m.params["size_bytes"], m.launch)]
        assert twin.samples == m.samples
        assert twin.value == m.value
        assert twin.params["ranks"] == 2
        assert twin.correctness is not None
        assert twin.correctness["passed"] is None
    assert verify(tmp_path / "store") == []


def test_an_imported_run_has_grade_d_and_compares_with_no_verified_run(
    real: RunRecord, tmp_path: Path
) -> None:
    source = tmp_path / "export.json"
    source.write_bytes(render("pytest-benchmark", [real], ALL))
    back = import_file(tmp_path / "store", source, "pytest-benchmark")
    assert grade_of(back.run, 99) == "D"
    assert "imported" in str(incomparable(back.run, real.run))
    assert "imported" in str(incomparable(real.run, back.run))
    assert compare_points(points_of(back)) == []
    contracts = {m.metric.contract_id for m in real.measurements}
    assert not contracts & {m.metric.contract_id for m in back.measurements}
    refused = invoke("compare", back.run_id, back.run_id, "--results", str(tmp_path / "store"))
    assert refused.exception is not None
    assert "imported" in str(refused.exception)
    shown = invoke("compare", back.run_id, "--results", str(tmp_path / "store"))
    assert shown.exit_code == 0
    assert "imported/pytest-benchmark" in shown.output


def test_csv_has_a_row_for_each_sample_and_reading_it_back_gives_the_same_doubles(real: RunRecord) -> None:
    rows = list(csv.DictReader(io.StringIO(render("csv", [real], ALL).decode())))
    assert len(rows) == sum(len(m.samples) for m in real.measurements)
    assert list(rows[0])[: len(CSV_COLUMNS)] == list(CSV_COLUMNS)
    index = 0
    for m in real.measurements:
        for position, sample in enumerate(m.samples):
            row = rows[index]
            assert float(row["value"]) == sample
            assert float(row["launch_value"]) == m.value
            assert int(row["sample"]) == position
            assert int(row["param.size_bytes"]) == m.params["size_bytes"]
            found = (row["metric"], row["unit"], row["grade"])
            assert found == (m.metric.name, m.metric.unit, "C")
            index += 1


def test_parquet_keeps_values_and_samples(real: RunRecord, tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    target = tmp_path / "run.parquet"
    write(target, render("parquet", [real], ALL), replace=False)
    rows = pq.read_table(target).to_pylist()
    assert len(rows) == len(real.measurements)
    for row, m in zip(rows, real.measurements, strict=True):
        assert row["record_id"] == m.record_id
        assert row["samples"] == list(m.samples)
        assert row["value"] == m.value
        assert json.loads(row["params"]) == dict(m.params)
        assert row["contract_id"] == m.metric.contract_id


def test_a_failure_is_a_row_without_a_number_and_is_named_where_only_numbers_fit(real: RunRecord) -> None:
    first = real.measurements[0]
    failed = first.model_copy(
        update={"status": "incorrect", "reason": "off by\none", "samples": [], "value": None, "n": 0}
    )
    others = [m for m in real.measurements if (m.block, m.label) != (first.block, first.label)]
    broken = RunRecord(path=real.path, run=real.run, measurements=(failed, *others), events=(), sealed=True)
    row = next(csv.DictReader(io.StringIO(render("csv", [broken], ALL).decode())))
    shown = [row[name] for name in ("status", "value", "launch_value", "grade")]
    assert shown == ["incorrect", "", "", ""]
    assert "incorrect: off by one" in document([broken], ALL)["paceline"]["left_out"][0]
    text = render("nccl-tests", [broken], ALL).decode()
    assert text.splitlines()[-1].startswith("# Left out: ")
    assert all(line.startswith("#") or line.split()[0].isdigit() for line in text.splitlines())


def test_nccl_columns_hold_time_and_bandwidths_by_the_formulas_of_nccl_tests(real: RunRecord) -> None:
    text = render("nccl-tests", [real], ALL).decode()
    rows: dict[tuple[str, str, int], list[str]] = {}
    facts: dict[str, object] = {}
    for line in text.splitlines():
        if line.startswith("# paceline "):
            facts = json.loads(line.removeprefix("# paceline "))
        elif not line.startswith("#"):
            words = line.split()
            assert len(words) == 13
            assert isinstance(facts["params"], dict)
            rows[(facts["params"]["op"], str(facts["technique"]), int(words[0]))] = words
    assert len(rows) == 8
    for point in points_of(real):
        op, size = str(point.params["op"]), int(point.params["size_bytes"])
        for label in ("native", "ring"):
            words = rows[(op, label, size)]
            seconds = estimate_value(point.cells[(label, "latency")].launches).value
            in_place = op == "all_reduce"
            measured, absent = (words[9:], words[5:9]) if in_place else (words[5:9], words[9:])
            assert absent == ["N/A"] * 4
            factor = 1.0 if in_place else 0.5
            assert words[1:5] == (
                [str(size // 4), "float", "sum", "-1"]
                if in_place
                else [str(size // 8), "float", "none", "-1"]
            )
            assert measured[0] == fit(seconds * 1e6, 7)
            assert measured[1] == fit(size / seconds / 1e9, 6)
            assert measured[2] == fit(size / seconds / 1e9 * factor, 6)
            assert measured[3] == "0"


def test_nccl_text_goes_through_import_and_export_unchanged(real: RunRecord, tmp_path: Path) -> None:
    first = tmp_path / "first.txt"
    first.write_bytes(render("nccl-tests", [real], ALL))
    back = import_file(tmp_path / "store", first, "nccl-tests")
    again = render("nccl-tests", [back], ALL).decode()
    assert {m.suite for m in back.measurements} == {"imported/nccl-tests"}
    assert _numbers(again) == _numbers(first.read_text())


def _numbers(text: str) -> list[str]:
    return sorted(line for line in text.splitlines() if not line.startswith("#"))


@pytest.mark.parametrize(
    ("value", "width", "text"),
    [
        (0.0, 6, "0.00"),
        (23.456, 7, "23.46"),
        (9999.994, 7, "9999.99"),
        (9999.999, 7, "10000.0"),
        (123456.7, 7, "123457"),
        (98765432.1, 7, "9.9e+07"),
        (12345.6, 6, "12346"),
        (9999999.0, 6, "1e+07"),
    ],
)
def test_numbers_fit_their_column(value: float, width: int, text: str) -> None:
    assert fit(value, width) == text


def test_an_unknown_metric_is_refused_with_the_nearest_name(real: RunRecord) -> None:
    with pytest.raises(UserError, match="latency"):
        render("csv", [real], Choice(metrics=("latensy",)))
    with pytest.raises(UserError, match="did you mean 'ring'"):
        render("csv", [real], Choice(techniques=("rng",)))


def test_a_format_without_a_place_for_the_chosen_metric_says_so(real: RunRecord) -> None:
    with pytest.raises(UserError, match="durations only"):
        render("pytest-benchmark", [real], Choice(metrics=("wire_bytes",)))


def test_an_existing_file_is_replaced_only_by_force(real: RunRecord, tmp_path: Path) -> None:
    target = tmp_path / "run.csv"
    target.write_text("precious")
    arguments = ("export", "csv", "--results", str(results_of(real)), "--output", str(target))
    assert isinstance(invoke(*arguments).exception, UserError)
    assert target.read_text() == "precious"
    assert invoke(*arguments, "--force").exit_code == 0
    assert target.read_text().startswith("run_id,")
    assert list(tmp_path.iterdir()) == [target]


def test_parquet_is_not_written_to_the_terminal(real: RunRecord) -> None:
    outcome = invoke("export", "parquet", "--results", str(results_of(real)))
    assert isinstance(outcome.exception, UserError)
    assert "--output" in str(outcome.exception)


def test_provenance_of_any_kind_fits_the_columns_of_parquet(tmp_path: Path) -> None:
    run = make_run(code={"commit": ["a"], "dirty": 10**18})
    path = write_record(tmp_path, run, [measurement(run, "native", 0, [1.0])])
    table = pq.read_table(io.BytesIO(render("parquet", [read_record(path)], ALL)))
    (row,) = table.select(["commit", "dirty"]).to_pylist()
    assert row == {"commit": '["a"]', "dirty": None}
