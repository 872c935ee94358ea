"""``paceline reproduce`` from end to end: each family, code that became slower, code of another commit."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import paceline_commands
import pytest

from paceline.base.errors import EXIT_INCOMPARABLE, EXIT_OK, EXIT_REGRESSION
from paceline.records.store.folder import RunRecord, load
from paceline.spec import content

SUITES = {
    "collectives": """
workload: {op: all_reduce}
baseline: native
techniques: [native, ring]
matrix: {size_bytes: [4KiB], ranks: [2]}
protocol: {launches: 1, max_seconds: 0.2, warmup_seconds: 0.1, kernel_calls: 0}
""",
    "kernels": """
workload: {op: triad, size_bytes: 1MiB}
baseline: torch-eager
techniques: [torch-eager]
protocol: {launches: 1, max_seconds: 0.2, warmup_seconds: 0.1}
""",
    "training": """
workload: {op: data_parallel, size: tiny, data: markov, batch: 4, context: 16, evaluations: 1}
baseline: ddp-ring
techniques: [ddp-ring]
matrix: {ranks: [2], steps: [40]}
protocol: {launches: 1, timeout: 120s}
""",
    "reasoning": """
workload: {op: solve, model: weak, partner: strong, levels: 1-2, temperature: 0.8, samples: 1, orders: 1}
baseline: large-model-only
techniques: [large-model-only]
matrix: {questions: [2]}
protocol: {launches: 1, timeout: 120s}
""",
}
HEAD = "suite: FAMILY/short\nversion: 1\nfamily: FAMILY\ndescription: x"
RUNNER = "runner: threads\ndescription: x\ndriver: debug\nmax_ranks: 2\n"


def paceline(
    *arguments: str, root: Path | None = None, extra: Path | None = None
) -> subprocess.CompletedProcess[str]:
    environment = dict(os.environ)
    if root is not None:
        environment["PYTHONPATH"] = str(root / "src")
    if extra is not None:
        environment["PACELINE_CONTENT"] = str(extra)
    command = paceline_commands.command(*arguments)
    return subprocess.run(
        command, capture_output=True, text=True, check=False, env=environment, cwd=root, timeout=200
    )


def test_records_of_every_family_are_not_different_on_the_same_machine(tmp_path: Path) -> None:
    texts = {
        f"suites/{name}/short.yaml": HEAD.replace("FAMILY", name) + text for name, text in SUITES.items()
    }
    for name, text in (texts | {"runners/threads.yaml": RUNNER}).items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    store = tmp_path / "store"
    suites = [f"{family}/short" for family in SUITES]
    first = paceline(
        "run", *suites, "--runner", "threads", "--results", str(store), "--quiet", extra=tmp_path
    )
    assert first.returncode == EXIT_OK, first.stderr
    (record,) = load([store]).records
    again = paceline("reproduce", record.run_id, "--results", str(store), "--quiet", extra=tmp_path)
    assert again.returncode == EXIT_OK, again.stdout + again.stderr
    assert "verdict: equivalent" in again.stdout or "verdict: inconclusive" in again.stdout
    (linked,) = [r for r in load([store]).records if r.run.linked_run == record.run_id]
    assert linked.run.reason == "reproduce"
    assert {m.family for m in linked.measurements if m.status == "ok"} == set(SUITES)


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a repository of this engine with one commit."""
    root = tmp_path_factory.mktemp("checkout")
    source = content.shipped_root()
    for name in ("src", "suites", "runners", "baselines", "reports"):
        shutil.copytree(source / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", ".gitignore"):
        shutil.copyfile(source / name, root / name)
    git(root, "init", "-q")
    commit(root)
    return root


def git(root: Path, *arguments: str) -> str:
    command = ["git", "-C", str(root), "-c", "user.name=t", "-c", "user.email=t@t", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def commit(root: Path) -> None:
    git(root, "add", "--all")
    git(root, "commit", "-q", "-m", "change")


@pytest.fixture(scope="module")
def record(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> RunRecord:
    store = tmp_path_factory.mktemp("records")
    arguments = (
        "run",
        "calibration/slower-by-3-percent",
        "--runner",
        "fake",
        "--results",
        str(store),
        "--quiet",
    )
    assert paceline(*arguments, root=checkout).returncode == EXIT_OK
    (found,) = load([store]).records
    assert found.run.code["dirty"] is False
    return found


def test_code_that_became_slower_is_different_and_the_code_of_the_record_is_not(
    checkout: Path, record: RunRecord, tmp_path: Path
) -> None:
    shutil.copytree(record.path.parents[2], tmp_path, dirs_exist_ok=True)
    suite = checkout / "suites" / "calibration" / "slower-by-3-percent.yaml"
    suite.write_text(suite.read_text().replace("factor: 1.03", "factor: 1.5"))
    commit(checkout)
    again = ("reproduce", record.run_id, "--results", str(tmp_path), "--quiet")
    here = paceline(*again, "--code", "here", root=checkout)
    assert here.returncode == EXIT_REGRESSION, here.stderr
    assert "verdict: different" in here.stdout
    told = re.search(r"slower latency against steady: (\d\.\d+)", here.stdout)
    assert told is not None, here.stdout
    assert 1.3 < float(told[1]) < 1.7, here.stdout
    then = paceline(*again, root=checkout)
    assert then.returncode == EXIT_OK, then.stdout + then.stderr
    assert "measuring with commit" in then.stderr
    assert "verdict: equivalent" in then.stdout or "verdict: inconclusive" in then.stdout
    new = [r for r in load([tmp_path]).records if r.run.linked_run == record.run_id]
    commits = {r.run.code["commit"] for r in new}
    assert commits == {record.run.code["commit"], git(checkout, "rev-parse", "HEAD")}
    assert len(git(checkout, "worktree", "list").splitlines()) == 1, "no worktree is left"
    notes = [
        e.data["reproduction"] for r in load([tmp_path]).records for e in r.events if "reproduction" in e.data
    ]
    assert notes[0] == "different"
    assert len(notes) == 2


def test_what_is_missing_is_named(checkout: Path, record: RunRecord, tmp_path: Path) -> None:
    shutil.copytree(record.path.parents[2], tmp_path, dirs_exist_ok=True)
    shutil.rmtree(checkout / ".git")
    git(checkout, "init", "-q")
    commit(checkout)
    again = paceline("reproduce", record.run_id, "--results", str(tmp_path), "--quiet", root=checkout)
    assert again.returncode == EXIT_INCOMPARABLE
    assert (
        f"verdict: cannot\n  commit {record.run.code['commit'][:12]} is not in this repository"
        in again.stdout
    )
    (checkout / "runners" / "fake.yaml").unlink()
    here = paceline("reproduce", record.run_id, "--code", "here", "--results", str(tmp_path), root=checkout)
    assert here.returncode == EXIT_INCOMPARABLE
    assert "verdict: cannot\n  unknown runner 'fake'" in here.stdout
