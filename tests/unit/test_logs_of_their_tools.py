"""Logs that lm-evaluation-harness, inspect_ai and lighteval wrote (``foreign_logs``), against a computation by hand.

The hand reads the tools' files with the standard library, pyarrow and numpy alone, and takes nothing of the product.
"""

from __future__ import annotations

import gzip
import json
import struct
import zipfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from scipy import stats

from paceline.base.errors import UserError
from paceline.cli.results.samples import samples

LOGS = Path(__file__).parent / "foreign_logs"
NAMES = ("one", "two", "three")
Items = Mapping[str, tuple[float, str]]
"""By question: score and subject."""


def compared(*arguments: str | Path) -> list[dict[str, Any]]:
    """Return what the command says of logs, the first one's figures first."""
    done = CliRunner().invoke(samples, [*map(str, arguments), "--json"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    found: list[dict[str, Any]] = json.loads(done.output)
    return found


def one_file(folder: str, pattern: str) -> Path:
    (found,) = (LOGS / folder).rglob(pattern)
    return found


def lm_eval_log(name: str) -> Path:
    return one_file(f"lm_eval/{name}", "samples_sums_*.jsonl")


def lm_eval_items(path: Path, chosen: str) -> Items:
    rows = map(json.loads, path.read_text().splitlines())
    return {
        row["doc"]["question"]: (row["exact_match"], row["doc"]["subject"])
        for row in rows
        if row["filter"] == chosen
    }


def unpacked(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the samples of an archive of inspect_ai, whose entries are zstd's."""
    data = path.read_bytes()
    for entry in zipfile.ZipFile(path).infolist():
        if entry.filename.startswith("samples/"):
            name, extra = struct.unpack_from("<HH", data, entry.header_offset + 26)
            begin = entry.header_offset + 30 + name + extra
            packed = data[begin : begin + entry.compress_size]
            yield json.loads(pa.decompress(packed, entry.file_size, codec="zstd", asbytes=True))


def inspect_items(log_samples: Iterator[dict[str, Any]]) -> Items:
    """Return the mean of an item's epochs under the scorer ``pattern``."""
    scores, subjects = defaultdict(list), {}
    for one in log_samples:
        scores[one["id"]].append(float(one["scores"]["pattern"]["value"] == "C"))
        subjects[one["id"]] = one["metadata"]["subject"]
    return {name: (float(np.mean(each)), subjects[name]) for name, each in scores.items()}


def lighteval_log(name: str) -> Path:
    return one_file(f"lighteval/{name}", "details_sums*.parquet")


def lighteval_items(path: Path) -> Items:
    rows = pq.read_table(path).to_pylist()
    return {
        row["doc"]["query"]: (row["metric"]["extractive_match"], row["doc"]["specific"]["subject"])
        for row in rows
    }


def by_hand(first: Items, others: list[Items], *, clustered: bool) -> list[dict[str, Any]]:
    """Return of each other log against the first what a reader would compute with numpy.

    The error is that of Liang and Zeger over clusters, the interval and p Student's with as many degrees of freedom as
    clusters but one, ``least`` the difference that has four chances in five, ``holm_p`` Holm's step-down.
    """
    found = []
    for other in others:
        names = sorted(first)
        deltas = np.array([other[name][0] - first[name][0] for name in names])
        groups = np.array([first[name][1] if clustered else name for name in names])
        mean, kinds = deltas.mean(), np.unique(groups)
        sums = np.array([(deltas[groups == kind] - mean).sum() for kind in kinds])
        error = np.sqrt(kinds.size / (kinds.size - 1) * (sums**2).sum()) / deltas.size
        t = stats.t(kinds.size - 1)
        half = t.ppf(0.975) * error
        figures: dict[str, Any] = {
            "difference": mean,
            "error": error,
            "low": mean - half,
            "high": mean + half,
        }
        figures |= {"p_value": 2 * t.sf(abs(mean) / error), "least": half + t.ppf(0.8) * error}
        if np.ptp(sums) < 1e-12:
            # All clusters lost alike: no spread to measure, and of 2^G ways to flip their signs two are as far off.
            figures |= {"error": 0.0, "low": None, "high": None, "least": None}
            figures["p_value"] = 2.0 ** (1 - kinds.size)
        found.append(figures | {"won": (deltas > 0).sum(), "lost": (deltas < 0).sum()})
    # The smallest p times how many there are, the next times one fewer, none below the one before.
    before = 0.0
    for rank, place in enumerate(np.argsort([one["p_value"] for one in found], kind="stable")):
        before = max(before, min(1.0, (len(found) - rank) * found[place]["p_value"]))
        found[place]["holm_p"] = before
    return found


def assert_equal(said: list[dict[str, Any]], hand: list[dict[str, Any]]) -> None:
    assert len(said) == len(hand)
    for mine, theirs in zip(said, hand, strict=True):
        for name, value in theirs.items():
            expected = None if value is None else pytest.approx(value, rel=1e-9, abs=1e-12)
            assert mine[name] == expected, name


@pytest.fixture
def inspect_logs(tmp_path: Path) -> dict[str, Path]:
    """Return the three logs of inspect_ai; that of ``--log-format json`` is kept packed, since it is long."""
    packed = one_file("inspect_ai/two", "*.json.gz")
    plain = tmp_path / packed.stem
    plain.write_bytes(gzip.decompress(packed.read_bytes()))
    archives = {name: one_file(f"inspect_ai/{name}", "*.eval") for name in ("one", "three")}
    return {"one": archives["one"], "two": plain, "three": archives["three"]}


def inspected(path: Path) -> Items:
    return inspect_items(
        unpacked(path) if path.suffix == ".eval" else iter(json.loads(path.read_text())["samples"])
    )


@pytest.mark.parametrize("clustered", [True, False])
def test_lm_eval_logs_are_compared_as_by_hand(clustered: bool) -> None:
    # Four logs against the first: two filters of three runs.
    chosen = [("one", "boxed"), ("two", "boxed"), ("three", "boxed"), ("two", "sum"), ("three", "sum")]
    first, *others = [lm_eval_items(lm_eval_log(name), one) for name, one in chosen]
    more = ["--cluster=subject"] if clustered else []
    head, *said = compared(*(f"{lm_eval_log(name)}#{one}" for name, one in chosen), *more)
    assert (head["tool"], head["metric"]) == ("lm-evaluation-harness", "exact_match")
    assert head["mean"] == pytest.approx(np.mean([value for value, _ in first.values()]))
    assert {one["num_clusters"] for one in said} == {4 if clustered else 12}
    assert_equal(said, by_hand(first, others, clustered=clustered))


@pytest.mark.parametrize("clustered", [True, False])
def test_inspect_logs_are_compared_as_by_hand(inspect_logs: dict[str, Path], clustered: bool) -> None:
    first, *others = [inspected(inspect_logs[name]) for name in NAMES]
    # Epochs that differ: the mean of an item's samples is what is compared.
    assert any(value == 0.5 for items in (first, *others) for value, _ in items.values())
    more = ["--cluster=subject"] if clustered else []
    head, *said = compared(*(inspect_logs[name] for name in NAMES), "--metric=pattern", *more)
    assert head["tool"] == "inspect_ai"
    assert head["mean"] == pytest.approx(np.mean([value for value, _ in first.values()]))
    assert_equal(said, by_hand(first, others, clustered=clustered))


@pytest.mark.parametrize("clustered", [True, False])
def test_lighteval_logs_are_compared_as_by_hand(clustered: bool) -> None:
    first, *others = [lighteval_items(lighteval_log(name)) for name in NAMES]
    more = ["--cluster=subject"] if clustered else []
    head, *said = compared(*(lighteval_log(name) for name in NAMES), *more)
    assert (head["tool"], head["metric"]) == ("lighteval", "extractive_match")
    assert_equal(said, by_hand(first, others, clustered=clustered))


def refused(*arguments: str | Path) -> str:
    with pytest.raises(UserError) as told:
        compared(*arguments)
    return str(told.value)


def test_a_log_that_was_cut_off_is_refused(tmp_path: Path, inspect_logs: dict[str, Path]) -> None:
    whole = lm_eval_log("one")
    text = whole.read_text()
    cut = tmp_path / whole.name
    cut.write_text(text[: text.index("\n", 5000) + 200])
    assert "is no JSON, as of a log that was cut off" in refused(f"{cut}#boxed", f"{whole}#boxed")
    # At the end of a line nothing is broken, and items are missing.
    lines = text.splitlines(keepends=True)
    cut.write_text("".join(lines[:9]))
    said = refused(f"{cut}#boxed", f"{whole}#boxed")
    assert "9 items are in both" in said and "3 in" in said
    archive = tmp_path / "2026-11-29T11-51-14-00-00_sums_cut.eval"
    archive.write_bytes(inspect_logs["one"].read_bytes()[:-100])
    assert "cannot be read as a log of samples: BadZipFile" in refused(archive, inspect_logs["three"])
    details = tmp_path / lighteval_log("one").name
    details.write_bytes(lighteval_log("one").read_bytes()[:-100])
    assert "cannot be read as a log of samples: ArrowInvalid" in refused(details, lighteval_log("two"))


def test_a_run_of_inspect_that_was_killed_or_failed_is_named(
    tmp_path: Path, inspect_logs: dict[str, Path]
) -> None:
    killed = one_file("inspect_ai/killed", "*.eval")
    said = refused(killed, inspect_logs["one"])
    assert "did not end: its status is none, as after a kill" in said and "inspect eval-retry" in said
    log = json.loads(inspect_logs["two"].read_text())
    log |= {"status": "error", "samples": log["samples"][:6]}
    failed = tmp_path / "2026-11-29T11-54-13-00-00_sums_failed.json"
    failed.write_text(json.dumps(log))
    assert "its status is error" in refused(inspect_logs["one"], failed, "--metric=pattern")
    _, part = compared(inspect_logs["one"], failed, "--metric=pattern", "--allow-partial")
    assert part["num_items"] == len({one["id"] for one in log["samples"]}) < 12


def edited_lm_eval(change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]], folder: Path) -> Path:
    path = folder / lm_eval_log("two").name
    rows = [json.loads(line) for line in lm_eval_log("two").read_text().splitlines()]
    path.write_text("".join(json.dumps(row) + "\n" for row in change(rows)))
    return path


def test_a_sample_that_is_there_twice_is_refused(tmp_path: Path, inspect_logs: dict[str, Path]) -> None:
    twice = edited_lm_eval(lambda rows: [*rows, rows[3]], tmp_path)
    said = refused(f"{lm_eval_log('one')}#boxed", f"{twice}#boxed")
    assert "sample 3, is there twice under exact_match" in said and str(twice) in said
    log = json.loads(inspect_logs["two"].read_text())
    log["samples"].append(log["samples"][0])
    double = tmp_path / "2026-11-29T11-54-13-00-00_sums_double.json"
    double.write_text(json.dumps(log))
    assert "sample 1, is there twice under pattern" in refused(inspect_logs["one"], double)
    table = pq.read_table(lighteval_log("two"))
    details = tmp_path / lighteval_log("two").name
    pq.write_table(pa.concat_tables([table, table.slice(4, 1)]), details)
    assert "is there twice under extractive_match" in refused(lighteval_log("one"), details)


def test_items_that_share_a_number_alone_are_refused(tmp_path: Path, inspect_logs: dict[str, Path]) -> None:
    def renumber(offset: int, path: Path) -> Path:
        log = json.loads(inspect_logs["two"].read_text())
        for one in log["samples"]:
            place = log["eval"]["dataset"]["sample_ids"].index(one["id"])
            one |= {"id": place + 1, "target": str(int(one["target"]) + offset)}
        path.write_text(json.dumps(log))
        return path

    numbered = renumber(0, tmp_path / "2026-11-29T11-54-13-00-00_sums_a.json")
    others = renumber(1, tmp_path / "2026-11-29T11-54-13-00-00_sums_b.json")
    assert compared(numbered, numbered, "--metric=pattern")[1]["difference"] == 0
    said = refused(numbered, others, "--metric=pattern")
    assert "12 items have another right answer than in" in said and 'of item 1, "6" and "5"' in said
    changed = edited_lm_eval(
        lambda rows: [{**row, "doc_hash": row["doc_hash"][::-1]} for row in rows], tmp_path
    )
    assert "0 items are in both, 12 in" in refused(f"{lm_eval_log('one')}#boxed", f"{changed}#boxed")
