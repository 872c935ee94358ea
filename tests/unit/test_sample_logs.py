"""Logs of samples of other harnesses: read as their tools write them, and compared as a computation by hand says."""

from __future__ import annotations

import json
import math
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from scipy import stats

from paceline.analysis.sample_pairs import compare_samples, side_of
from paceline.base.errors import UserError
from paceline.cli.results.samples import samples
from paceline.records.imports.sample_logs import read_log
from paceline.stats.clusters import clustered_difference

LEFT = [1, 0, 1, 1, 0, 1, 1, 0, 1, 1]
RIGHT = [1, 0, 0, 1, 0, 0, 1, 1, 0, 1]
GROUPS = ["a", "a", "a", "b", "b", "c", "c", "c", "d", "d"]


def lm_eval(path: Path, values: list[int], **more: Any) -> Path:
    path.write_text(
        "".join(
            json.dumps(
                {
                    "doc_id": n,
                    "doc": {"question": f"Q{n}", "subject": GROUPS[n]},
                    "target": "x",
                    "filter": "strict-match",
                    "metrics": ["exact_match"],
                    "doc_hash": f"h{n}",
                    "exact_match": float(value),
                    **more,
                }
            )
            + "\n"
            for n, value in enumerate(values)
        )
    )
    return path


def test_clustered_errors_are_those_of_a_computation_by_hand() -> None:
    found = clustered_difference(LEFT, RIGHT, GROUPS)
    # Differences 0 0 1 | 0 0 | 1 0 -1 | 1 0, mean 0.2: sums of d − mean by group 0.4, −0.4, −0.6, 0.6.
    assert found.difference == pytest.approx(0.2)
    error = math.sqrt(4 / 3 * (0.16 + 0.16 + 0.36 + 0.36)) / 10
    assert found.error == pytest.approx(error)
    t = stats.t(3)
    assert found.p_value == pytest.approx(2 * t.sf(0.2 / error))
    assert found.high == pytest.approx(0.2 + t.ppf(0.975) * error)
    assert found.least == pytest.approx((t.ppf(0.975) + t.ppf(0.8)) * error)
    plain = clustered_difference(LEFT, RIGHT, range(10))
    deltas = np.subtract(LEFT, RIGHT)
    assert plain.error == plain.plain_error == pytest.approx(deltas.std(ddof=1) / math.sqrt(10))
    assert plain.p_value == pytest.approx(stats.ttest_rel(LEFT, RIGHT).pvalue)
    assert found.plain_error == plain.error


def test_one_cluster_and_no_difference_have_no_false_precision() -> None:
    assert clustered_difference([1.0, 0.0], [0.0, 0.0], ["a", "a"]).error is None
    same = clustered_difference([1.0, 0.0], [1.0, 0.0], ["a", "b"])
    assert (same.difference, same.error, same.p_value) == (0.0, 0.0, 1.0)
    assert (same.low, same.high, same.least) == (None, None, None)
    # All won: the t-test would say 0. Of three clusters, two of the eight ways to flip signs are as far from 0.
    won = clustered_difference([1.0] * 4, [0.0] * 4, ["a", "a", "b", "c"])
    assert (won.difference, won.p_value, won.low) == (1.0, 0.25, None)
    rounded = clustered_difference([0.1] * 3, [0.0] * 3, range(3))
    assert (rounded.error, rounded.p_value, rounded.low) == (0.0, 0.25, None)
    with pytest.raises(ValueError, match="2, 1 and 2 items"):
        clustered_difference([1.0, 0.0], [1.0], ["a", "b"])


def test_several_logs_are_adjusted_by_holm(tmp_path: Path) -> None:
    one = lm_eval(tmp_path / "samples_t_1.jsonl", RIGHT)
    two = lm_eval(tmp_path / "samples_t_2.jsonl", LEFT)
    three = lm_eval(tmp_path / "samples_t_3.jsonl", [1] * 10)
    sides = [side_of(read_log(str(path)), None) for path in (one, two, three)]
    pairs = compare_samples(sides)
    raw = [p.found.p_value for p in pairs]
    assert raw[0] is not None and raw[1] is not None
    small, large = sorted(raw)  # type: ignore[type-var]
    expected = {small: min(2 * small, 1), large: max(min(2 * small, 1), large)}  # type: ignore[operator,dict-item]
    assert [p.adjusted_p for p in pairs] == [pytest.approx(expected[value]) for value in raw]
    assert (pairs[0].won, pairs[0].lost) == (3, 1)
    assert pairs[0].exact_p == pytest.approx(stats.binomtest(1, 4).pvalue)


def test_the_command_prints_the_comparison_by_clusters(tmp_path: Path) -> None:
    one = lm_eval(tmp_path / "samples_t_1.jsonl", RIGHT)
    two = lm_eval(tmp_path / "samples_t_2.jsonl", LEFT)
    done = CliRunner().invoke(samples, [str(one), str(two), "--cluster=subject", "--wide"])
    assert done.exit_code == 0
    assert "10 items, 4 clusters by subject" in done.output
    assert "+0.2000 [-0.1" in done.output
    plain = CliRunner().invoke(samples, [str(one), str(two), "--json"])
    assert json.loads(plain.output)[1]["difference"] == pytest.approx(0.2)
    for arguments, said in (
        ([str(one)], "one log alone"),
        ([str(one), str(two), "--cluster=topic"], "no field 'topic'"),
        ([str(one), str(two), "--metric=acc"], "no metric 'acc'"),
    ):
        with pytest.raises(UserError, match=said):
            CliRunner().invoke(samples, arguments, catch_exceptions=False)


def test_logs_of_other_items_and_of_several_filters_are_refused(tmp_path: Path) -> None:
    one = lm_eval(tmp_path / "samples_t_1.jsonl", RIGHT)
    fewer = lm_eval(tmp_path / "samples_t_2.jsonl", LEFT[:7])
    sides = [side_of(read_log(str(path)), None) for path in (one, fewer)]
    with pytest.raises(UserError, match=r"7 items are in both, 3 in .* alone, 0 in"):
        compare_samples(sides)
    assert compare_samples(sides, partial=True)[0].found.num_items == 7
    other = lm_eval(tmp_path / "samples_u_3.jsonl", LEFT)
    with pytest.raises(UserError, match="0 items are in both"):
        compare_samples([sides[0], side_of(read_log(str(other)), None)])
    both = tmp_path / "samples_t_4.jsonl"
    second = lm_eval(tmp_path / "samples_t_5.jsonl", LEFT, filter="flexible-extract").read_text()
    both.write_text(one.read_text() + second)
    with pytest.raises(UserError, match=r"'exact_match' is there 2 times: strict-match, flexible-extract"):
        side_of(read_log(str(both)), None)
    chosen = side_of(read_log(f"{both}#flexible-extract"), None)
    assert chosen.mean == pytest.approx(0.7)


@pytest.mark.parametrize("text", ["", "[]", '{"a": 1}\n', "{"])
def test_what_is_no_log_is_refused_in_words(tmp_path: Path, text: str) -> None:
    path = tmp_path / "samples_t_1.jsonl"
    path.write_text(text)
    with pytest.raises(UserError, match=r"read as a log of samples|nothing in it is scored"):
        read_log(str(path))
    with pytest.raises(UserError, match="there is no log"):
        read_log(str(tmp_path / "nowhere"))


def inspected(number: int, epoch: int, value: Any) -> dict[str, Any]:
    score = {"value": value, "answer": "3", "explanation": "3", "metadata": None, "history": []}
    return {
        "id": f"q{number}",
        "epoch": epoch,
        "input": f"Q{number}",
        "target": "3",
        "metadata": {"subject": GROUPS[number]},
        "scores": {"match": score},
    }


def zstd_archive(path: Path, rows: list[dict[str, Any]]) -> Path:
    """Write an archive as inspect_ai does since 2026: entries by zstd, which this Python does not write."""
    packed = {}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for row in rows:
            data = pa.compress(json.dumps(row).encode(), codec="zstd", asbytes=True)
            name = f"samples/{row['id']}_epoch_{row['epoch']}.json"
            archive.writestr(name, data)
            packed[name] = len(data)
        archive.writestr("header.json", '{"status": "success"}')
    raw = bytearray(path.read_bytes())
    # The method stands 8 bytes behind a local header's beginning, and 10 behind one of the directory.
    for mark, behind, at in ((b"PK\x03\x04", 8, 30), (b"PK\x01\x02", 10, 46)):
        place = raw.find(mark)
        while place >= 0:
            if raw[place + at :].startswith(b"samples/"):
                raw[place + behind : place + behind + 2] = (93).to_bytes(2, "little")
            place = raw.find(mark, place + 4)
    path.write_bytes(raw)
    return path


def test_logs_of_inspect_are_read_with_their_epochs_and_letters(tmp_path: Path) -> None:
    rows = [
        inspected(n, e, "C" if v and not (e == 2 and n == 2) else "I")
        for e in (1, 2)
        for n, v in enumerate(LEFT)
    ]
    packed = zstd_archive(tmp_path / "2026-11-27T09-48-26-00-00_sums_B25gj587.eval", rows)
    side = side_of(read_log(str(packed)), None)
    assert (side.tool, side.metric) == ("inspect_ai", "match")
    assert side.values == {f"q{n}": 0.5 if n == 2 else float(v) for n, v in enumerate(LEFT)}
    folder = tmp_path / "plain"
    folder.mkdir()
    plain = [inspected(n, 1, v) for n, v in enumerate(RIGHT)] + [inspected(9, 2, "N")]
    log = {"version": 2, "status": "success", "eval": {"task": "sums"}, "samples": plain}
    (folder / "2026-11-27T09-48-33-00-00_sums_i4fcmCBq.json").write_text(json.dumps(log))
    (folder / "other.json").write_text("{}")
    other = side_of(read_log(str(folder)), None)
    assert other.values["q9"] == 0.5
    (pair,) = compare_samples([other, side], cluster="subject")
    assert pair.found.num_clusters == 4
    assert pair.found.difference == pytest.approx(0.2)  # half a point less, and half a point more


def test_details_of_lighteval_are_read_by_question_whatever_their_order(tmp_path: Path) -> None:
    def details(folder: Path, values: list[int], order: list[int]) -> Path:
        folder.mkdir()
        rows = [
            {
                "doc": {
                    "query": f"Q{n}",
                    "choices": ["39", "0"],
                    "gold_index": 0,
                    "id": str(n),
                    "task_name": "sums|0",
                },
                "metric": {"acc": values[n]},
                "model_response": {"text": [], "logprobs": [-0.1, -0.8]},
            }
            for n in order
        ]
        pq.write_table(
            pa.Table.from_pylist(rows), folder / "details_sums|0_2026-11-27T09-54-20.947930.parquet"
        )
        return folder

    one = details(tmp_path / "one", RIGHT, list(range(10)))
    two = details(tmp_path / "two", LEFT, list(reversed(range(10))))
    sides = [side_of(read_log(str(path)), None) for path in (one, two)]
    assert [side.tool for side in sides] == ["lighteval", "lighteval"]
    (pair,) = compare_samples(sides)
    assert pair.found.difference == pytest.approx(0.2)
    assert (pair.won, pair.lost) == (3, 1)


def test_a_folder_stands_for_the_newest_log_of_each_task(tmp_path: Path) -> None:
    lm_eval(tmp_path / "samples_t_2026-11-26.jsonl", RIGHT)
    lm_eval(tmp_path / "samples_t_2026-11-27.jsonl", LEFT)
    lm_eval(tmp_path / "samples_u_2026-11-26.jsonl", RIGHT)
    side = side_of(read_log(str(tmp_path)), None)
    assert len(side.values) == 20
    assert side.mean == pytest.approx((0.7 + 0.5) / 2)
