"""Provenance: one real run leaves a legal record and tells no secret; code and suites are described as they were."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
import suite_text

from paceline.records.format.record import record_schema
from paceline.records.format.record_file import content_of, is_packed, lines_of
from paceline.records.origin.provenance import code_state, suite_facts, technique_facts
from paceline.records.store.folder import RunRecord, read_record, record_paths
from paceline.records.store.integrity import verify
from paceline.spec import content
from paceline.spec.plans.plan import Selection, make_plan
from paceline.spec.profiles.profile import load_runner

PLANTED = "S3cr3t-9f2c"
ENVIRONMENT = {
    "HF_TOKEN": PLANTED + "-env1",
    "AWS_SECRET_ACCESS_KEY": PLANTED + "-env2",
    "PACELINE_API_KEY": PLANTED + "-env3",
    "NCCL_AUTH": PLANTED + "-env4",
    "DATABASE": PLANTED + "-env5",
    "TORCH_MIRROR": f"https://me:{PLANTED}-env6@host/path?token={PLANTED}-env7",
    "OMP_DISPLAY_ENV": "false",
}
ARGUMENTS = [
    "--hf-token",
    PLANTED + "-arg1",
    f"--api-key={PLANTED}-arg2",
    f"MY_PASSWORD={PLANTED}-arg3",
    f"https://me:{PLANTED}-arg4@host",
    f"https://host?access_token={PLANTED}-arg5",
]
EMBEDDED = """
import sys
from paceline.cli import application
end = sys.argv.index("END")
application(args=sys.argv[1:end])
"""
"""A program of someone else that calls Paceline: its own arguments stand in the command line, too."""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Measure one small point with real processes, with secrets in the environment and the command line."""
    folder = tmp_path_factory.mktemp("provenance")
    suite = suite_text.write(
        folder,
        ("[4KiB, 1MiB]", "[4KiB]"),
        ("[2, 4]", "[2]"),
        ("{launches: 5}", "{launches: 1, max_seconds: 0.1, warmup: 3, kernel_calls: 0}"),
    )
    root = folder / "results"
    result = subprocess.run(
        [sys.executable, "-c", EMBEDDED, "run", str(suite), "--results", str(root), "END", *ARGUMENTS],
        env={**os.environ, **ENVIRONMENT},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    (root / "terminal.txt").write_text(result.stdout + result.stderr)
    return root


@pytest.fixture(scope="module")
def record(store: Path) -> RunRecord:
    (path,) = record_paths(store)
    return read_record(path)


def test_no_planted_secret_is_in_any_file_of_a_run(store: Path) -> None:
    files = [p for p in store.rglob("*") if p.is_file()]
    assert {"plan.json", "job.json", "MANIFEST.jsonl", "launcher.log"} <= {p.name for p in files}
    assert [
        str(p)
        for p in files
        if PLANTED.encode() in (content_of(p) if is_packed(p) else p.read_bytes()) or PLANTED in str(p)
    ] == []


def test_what_may_be_told_is_told(record: RunRecord) -> None:
    environment = record.run.environment
    assert environment["OMP_DISPLAY_ENV"] == "false"
    assert environment["TORCH_MIRROR"] == "https://…@host/path?token=…"
    assert not {"HF_TOKEN", "PACELINE_API_KEY", "NCCL_AUTH", "DATABASE"} & set(environment)
    shown = [
        "--hf-token",
        "…",
        "--api-key=…",
        "MY_PASSWORD=…",
        "https://…@host",
        "https://host?access_token=…",
    ]
    assert record.run.argv[-6:] == shown
    assert record.run.argv[:2] == ["paceline", "run"]


def test_a_real_record_is_sealed_verified_and_fits_the_published_schema(
    store: Path, record: RunRecord
) -> None:
    assert record.sealed
    assert verify(store) == []
    validator = jsonschema.Draft202012Validator(record_schema())
    lines = [json.loads(text) for text in lines_of(record.path)]
    for line in lines:
        validator.validate(line)
    assert [line["line"] for line in lines].count("run") == 1
    assert {(m.label, m.status) for m in record.measurements} == {("native", "ok"), ("ring", "ok")}
    assert len({m.record_id for m in record.measurements}) == len(record.measurements)


def test_a_real_record_says_where_its_numbers_come_from(record: RunRecord) -> None:
    run = record.run
    assert set(run.techniques) == {"collectives/native", "collectives/ring"}
    for facts in run.techniques.values():
        assert facts["sha256"] == content.sha256_file(
            content.shipped_root() / "baselines" / "collectives" / facts["file"]
        )
    assert run.host_class
    assert run.packages
    assert any(p.startswith("torch==") for p in run.packages["freeze"])
    assert run.host
    assert "hostname" not in run.host
    assert run.plan_sha256
    assert run.seeds == {"seed": run.seeds["seed"], "fixed": False}  # type: ignore[index]


def git(folder: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", "-C", str(folder), *identity, *arguments], check=True, capture_output=True)


def test_code_is_described_by_commit_and_by_what_is_not_committed(tmp_path: Path) -> None:
    assert code_state(tmp_path)["commit"] is None
    git(tmp_path, "init", "-q")
    assert code_state(tmp_path) == {"commit": None, "dirty": None, "reason": "no commit yet"}
    file = tmp_path / "src" / "a.py"
    file.parent.mkdir()
    file.write_text("a = 1\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "one")
    clean = code_state(tmp_path)
    assert (len(clean["commit"]), clean["dirty"], "diff" in clean) == (40, False, False)
    file.write_text("a = 2\n")
    first = code_state(tmp_path)
    assert (first["commit"], first["dirty"], first["changed_files"]) == (clean["commit"], True, ["src/a.py"])
    assert "+a = 2" in first["diff"]
    file.write_text("a = 3\n")
    assert code_state(tmp_path)["diff_sha256"] != first["diff_sha256"]
    file.write_text("a = 1\n")
    (tmp_path / "src" / "b.py").write_text("")
    assert code_state(tmp_path)["changed_files"] == ["src/b.py"]


def test_suites_and_techniques_are_recorded_as_they_were(tmp_path: Path) -> None:
    suite = suite_text.load(tmp_path)
    (facts,) = suite_facts([suite])
    assert facts["metrics"] == {"latency": 0.02}
    assert (facts["baseline"], facts["version"], facts["file"]) == ("native", 1, "example.yaml")
    assert facts["sha256"] == content.sha256_file(suite.path)
    assert facts["claims"][0]["expect"] == {"ratio_at_most": 1.5}
    plan = make_plan(
        [suite], load_runner(content.find_runner("local-cpu")), Selection(filters=(("ranks", "4"),))
    )
    assert set(technique_facts([suite], plan.blocks)) == {"collectives/native"}
