"""Text of a local folder reaches both ranks of a real run through the cache, and its fingerprint the record."""

from __future__ import annotations

import hashlib
import json
import math
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import paceline_commands
import pytest
import yaml

import paceline
from paceline.families.training.core import hub
from paceline.records.format.record import Measurement
from paceline.records.store.folder import read_record, record_paths

ROWS = 12_000
TECHNIQUES = ["ddp-ring", "local-sgd"]
POINT = {
    "op": "data_parallel",
    "size": "nano",
    "batch": 8,
    "context": 32,
    "learning_rate": 0.01,
    "warmup_steps": 4,
    "window": 20,
    "evaluations": 4,
    "eval_batch": 32,
}
FIRST, OTHER = (
    "says something that is long enough to learn from",
    "SAYS SOMETHING THAT IS LONG ENOUGH TO LEARN FROM",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Runs:
    """Two runs of one suite; between them the folder's text changed so that only its bytes tell."""

    cache: Path
    first: list[Measurement]
    second: list[Measurement]


def texts(says: str) -> list[str]:
    return [f"row {i} {says}, {i * i}" for i in range(ROWS)]


def write_rows(path: Path, says: str) -> None:
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts(says)))


def suite_file(folder: Path, data: Path) -> Path:
    path = folder / "hub-data.yaml"
    suite = {
        "suite": "training/hub-data",
        "version": 1,
        "family": "training",
        "why": "Text of a local folder.",
        "workload": {**POINT, "data": f"hf:{data}"},
        "baseline": TECHNIQUES[0],
        "techniques": TECHNIQUES,
        "matrix": {"ranks": [2], "steps": [400]},
        "tiers": {"quick": {"matrix": {"steps": [80]}}},
        "protocol": {"launches": 1, "timeout": "100s"},
    }
    path.write_text(yaml.safe_dump(suite))
    return path


def run(suite: Path, results: Path, environment: dict[str, str]) -> list[Measurement]:
    arguments = ["run", str(suite), "--tier", "quick", "--runner", "local-cpu", "--results", str(results)]
    done = subprocess.run(
        paceline_commands.command(*arguments, "--quiet"),
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = record_paths(results)
    return list(read_record(path).measurements)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    folder = tmp_path_factory.mktemp("hub")
    data, cache = folder / "rows", folder / "cache"
    data.mkdir()
    write_rows(data / "train.jsonl", FIRST)
    suite = suite_file(folder, data)
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(paceline.__file__).parents[1]),
        "PACELINE_DATA": str(cache),
        "HF_HOME": str(folder / "hub"),
        "HF_HUB_OFFLINE": "1",
    }
    first = run(suite, folder / "first", environment)
    facts = (data / "train.jsonl").stat()
    write_rows(data / "train.jsonl", OTHER)
    os.utime(data / "train.jsonl", ns=(facts.st_atime_ns, facts.st_mtime_ns))
    assert (data / "train.jsonl").stat().st_size == facts.st_size
    return Runs(cache=cache, first=first, second=run(suite, folder / "second", environment))


def fingerprint(says: str) -> str:
    """Return the digest of the text to train on and the text held out, from the rows that were written."""
    rows = [text.encode() + hub.SEPARATOR for text in texts(says)]
    return hashlib.sha256(
        b"".join(r for i, r in enumerate(rows) if i % hub.HELD_OUT_SHARE)
        + b"".join(rows[:: hub.HELD_OUT_SHARE])
    ).hexdigest()


def fingerprints(measurements: list[Measurement]) -> dict[str, str]:
    """Return what each technique's judgement says of its data."""
    return {
        m.label: m.correctness["data_sha256"] for m in measurements if "data_sha256" in (m.correctness or {})
    }


def test_baseline_and_technique_train_on_it_over_two_ranks(runs: Runs) -> None:
    assert {m.label for m in runs.first} == set(TECHNIQUES)
    for measurement in runs.first:
        assert measurement.status == "ok", measurement.reason
        assert measurement.scale["ranks"] == 2


@pytest.mark.parametrize("name", TECHNIQUES)
def test_its_loss_falls(name: str, runs: Runs) -> None:
    told = [m.accounting for m in runs.first if m.label == name and m.accounting]
    (curve,) = (accounting["curve"]["eval_loss"] for accounting in told if "curve" in accounting)
    assert all(math.isfinite(loss) for loss in curve)
    assert abs(curve[0] - math.log(256)) < 0.5  # nothing is known of a byte yet
    assert curve[-1] < curve[0] - 1
    (final,) = (m.value for m in runs.first if m.label == name and m.metric.name == "eval_loss")
    assert final == pytest.approx(curve[-1])


def test_the_record_holds_the_fingerprint_of_the_text(runs: Runs) -> None:
    assert fingerprints(runs.first) == dict.fromkeys(TECHNIQUES, fingerprint(FIRST))


def test_ranks_read_the_cache_that_the_command_was_told(runs: Runs) -> None:
    (entry,) = (path for path in runs.cache.iterdir() if path.is_dir())
    assert sorted(path.name for path in entry.iterdir()) == sorted([hub.TRAIN, hub.HELD_OUT])


def test_a_second_run_reads_the_cache_alone(runs: Runs) -> None:
    assert fingerprint(OTHER) != fingerprint(FIRST)
    assert {m.status for m in runs.second} == {"ok"}
    assert fingerprints(runs.second) == fingerprints(runs.first)
