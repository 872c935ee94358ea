"""Time what grows with the number of results: reading, building the site, and aggregating measurements.

    python benchmarks/scale.py site --rows 25000          # leaderboard rows; also built again after one more night,
                                                          # and searched in Chromium where playwright is installed
    python benchmarks/scale.py aggregate --rows 1000000   # measurements in Parquet; pandas, and DuckDB where installed

Figures are printed as JSON. The stores are synthetic and lie in a temporary folder.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from paceline.base.families.contracts import contract_id
from paceline.base.families.family import load_family
from paceline.records.format.record import Measurement, MetricId, Run
from paceline.records.identity import new_run_id, record_id, series_key
from paceline.records.store.record_writer import RecordWriter
from paceline.stats.estimates import launch_statistic

TECHNIQUES, LAUNCHES, SAMPLES, POINTS_PER_BOARD = 10, 5, 7, 100


def write_night(store: Path, host: str, points: int, seed: int) -> None:
    """Write a run of one suite: so many points of ten techniques in five launches each."""
    rng = np.random.default_rng(seed)
    spec = load_family("collectives").metric("latency")
    suite = {
        "suite": "collectives/all-reduce",
        "version": 1,
        "family": "collectives",
        "baseline": "t0",
        "metrics": {"latency": 0.02},
        "claims": [],
    }
    run = Run(
        run_id=new_run_id(),
        started=f"2026-11-{1 + seed % 28:02d}T01:00:00.000Z",
        reason="nightly",
        argv=["paceline", "run"],
        tool_version="0.1.0",
        suites=[suite],
        runner={"name": "local-cpu"},
        code={"commit": "a" * 40, "dirty": False},
        host_class=host,
    )
    metric = MetricId(
        name="latency",
        unit="s",
        better="lower",
        statistic=spec.statistic,
        contract_id=contract_id("collectives", spec),
    )
    writer = RecordWriter(store, run)
    for point in range(points):
        params = {"op": "all_reduce", "size_bytes": 8 * (point + 1), "ranks": 2}
        lines = []
        for launch in range(LAUNCHES):
            for place in range(TECHNIQUES):
                label, block = f"t{place}", f"block-{point}"
                centre = 1e-4 * (1 + point / 50) * (1 + place / 20)
                drawn = (centre * np.exp(rng.normal(size=SAMPLES) * 0.01)).tolist()
                case = f"{label}-{point}"
                lines.append(
                    Measurement(
                        record_id=record_id("collectives", run.run_id, block, label, launch, "latency"),
                        run_id=run.run_id,
                        suite="collectives/all-reduce",
                        suite_version=1,
                        family="collectives",
                        block=block,
                        case_id=case,
                        series_key=series_key(
                            "collectives", case, label, host, contract_id("collectives", spec)
                        ),
                        launch=launch,
                        params=params,
                        technique=label,
                        label=label,
                        role="technique" if place else "baseline",
                        scale={"nodes": 1, "ranks": 2},
                        metric=metric,
                        samples=drawn,
                        value=launch_statistic(drawn, spec.statistic),
                        n=SAMPLES,
                        status="ok",
                        correctness={"passed": True, "oracle": "exact"},
                    )
                )
        writer.write(*lines)
    writer.seal()


def site(rows: int) -> dict[str, Any]:
    """Build a site of so many leaderboard rows, and build it again when one run was added."""
    with tempfile.TemporaryDirectory() as name:
        store, target = Path(name) / "results", Path(name) / "site"
        boards = max(1, rows // (POINTS_PER_BOARD * TECHNIQUES))
        points = min(POINTS_PER_BOARD, max(1, rows // TECHNIQUES))
        for board in range(boards):
            write_night(store, f"CPU {board:03d}, 2 cores", points, board)
        found: dict[str, Any] = {"rows": boards * points * TECHNIQUES}
        build = ["site", "build", "--results", str(store), "--output", str(target)]
        found["build_s"], found["build_cpu_s"] = clocked(lambda: paceline(*build))
        write_night(store, "CPU 000, 2 cores", points, 99)
        found["one_more_run_s"], found["one_more_run_cpu_s"] = clocked(lambda: paceline(*build))
        found["compact_s"], found["compact_cpu_s"] = clocked(
            lambda: paceline("store", "compact", "--results", str(store))
        )
        found["index_bytes"] = (target / "index.html").stat().st_size
        found["search_index_bytes"] = (target / "search-index.js").stat().st_size
        found |= search(target)
        found["largest_board_bytes"] = max(p.stat().st_size for p in (target / "boards").glob("*.html"))
    return found


def search(target: Path) -> dict[str, Any]:
    """Ask the search box of a site in Chromium.

    Returns:
        The time to read the index, which begins when somebody goes to the box; that of the first question after it, and
        of the slowest of some more at its best.
    """
    try:
        from playwright.sync_api import sync_playwright  # noqa: PLC0415 - an extra
    except ImportError:
        return {"search": "not run: needs pip install playwright and Chromium"}
    chromium = os.environ.get("PACELINE_CHROMIUM") or shutil.which("chromium") or "/usr/bin/chromium"
    with sync_playwright() as started:
        page = started.chromium.launch(executable_path=chromium, args=["--no-sandbox"]).new_page()
        page.goto((target / "index.html").as_uri())
        load = page.evaluate(LOAD)
        first = page.evaluate(SEARCH, QUESTIONS[0])
        later = [min(page.evaluate(SEARCH, asked) for _ in range(REPEATS)) for asked in QUESTIONS[1:]]
    return {
        "search_load_ms": round(load),
        "search_first_ms": round(first, 1),
        "search_slowest_ms": round(max(later), 1),
    }


REPEATS = 5  # other work on the machine is none of the search's
QUESTIONS = (
    "all-reduce",
    "all-reduce of 1 MiB at 100 Mbit/s",
    "t7",
    "how noisy is this machine?",
    "a",
    "diloco",
)
LOAD = """async () => {
  const begin = performance.now();
  document.querySelector(".search input").focus();
  while (!window.pacelineSearch) await new Promise(next => setTimeout(next, 1));
  return performance.now() - begin;
}"""
SEARCH = """async asked => {
  const input = document.querySelector(".search input"), place = document.querySelector(".found");
  place.replaceChildren();
  const begin = performance.now();
  input.value = asked;
  const answered = new Promise(done => new MutationObserver(done).observe(place, { childList: true }));
  input.dispatchEvent(new Event("input"));
  await answered;
  place.getBoundingClientRect(); // laid out, too
  return performance.now() - begin;
}"""


def aggregate(rows: int) -> dict[str, Any]:
    """Take the median of every series of a table like that of ``store compact``, with pandas and with DuckDB."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "measurements.parquet"
        rng = np.random.default_rng(0)
        with pq.ParquetWriter(path, synthetic(rng, 1, rows).schema, compression="zstd") as writer:
            for begin in range(0, rows, 1_000_000):
                writer.write_table(synthetic(rng, min(1_000_000, rows - begin), rows))
        found: dict[str, Any] = {"rows": rows, "parquet_bytes": path.stat().st_size}
        if rows <= 2_000_000:
            wall, cpu = clocked(lambda: python(PANDAS, path))
            found |= {"pandas_s": wall, "pandas_cpu_s": cpu}
        try:
            import duckdb  # noqa: F401, PLC0415 - an extra
        except ImportError:
            found["duckdb"] = "not run: needs pip install 'paceline[fast]'"
        else:
            wall, cpu = clocked(lambda: python(DUCKDB, path))
            found |= {"duckdb_s": wall, "duckdb_cpu_s": cpu}
    found["peak_bytes"] = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    return found


PANDAS = """import sys, pandas
frame = pandas.read_parquet(sys.argv[1], columns=["series_key", "launch", "value"])
print(len(frame.groupby("series_key", sort=False)["value"].agg(["median", "count"])))"""
DUCKDB = """import sys, duckdb
query = "select series_key, median(value), count(*) from read_parquet(?) group by series_key"
print(len(duckdb.execute(query, [sys.argv[1]]).fetchall()))"""


def synthetic(rng: np.random.Generator, count: int, total: int) -> pa.Table:
    """Return rows with the columns that an aggregation reads, a hundred of each series."""
    keys = np.char.add("series-", np.arange(max(1, total // 100)).astype(str))
    picked = pa.array(rng.integers(0, keys.size, count))
    return pa.table(
        {
            "series_key": pa.array(keys.tolist()).take(picked),
            "launch": pa.array(rng.integers(0, 5, count)),
            "value": pa.array(np.exp(rng.normal(size=count))),
        }
    )


def paceline(*arguments: str) -> None:
    """Run a command as a person does."""
    subprocess.run([sys.executable, "-m", "paceline.cli", *arguments], check=True, stdout=subprocess.DEVNULL)


def python(program: str, path: Path) -> None:
    """Run a program in a fresh interpreter."""
    subprocess.run([sys.executable, "-c", program, str(path)], check=True, stdout=subprocess.DEVNULL)


def clocked(call: Callable[[], None]) -> tuple[float, float]:
    """Return the seconds that a call took, and the processor seconds of the processes that it started."""
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    call()
    wall, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return round(wall, 2), round(cpu, 2)


def main() -> None:
    """Read the command line and print the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("site", "aggregate"))
    parser.add_argument("--rows", type=int, required=True)
    given = parser.parse_args()
    print(json.dumps({"site": site, "aggregate": aggregate}[given.what](given.rows), indent=1))


if __name__ == "__main__":
    main()
