"""Job folders: everything that a machine with only torch and numpy needs to execute a plan.

    plan.json              what to run
    job.json               run id and provenance of the controller
    engine/paceline/       the worker's half of the engine
    baselines/<family>/    the techniques, as files
    user/                  techniques that the user gave by path
    own/<digest>/          models and data of the user's own that points name
    run.sh                 executes the plan here; events-*.jsonl, rank-*.log and logs/ come out

All drivers use the same folder: what runs is what was copied here, whatever happens to the checkout meanwhile.
"""

from __future__ import annotations

import ast
import json
import os
import shutil
from collections.abc import Iterable, Mapping, Set
from pathlib import Path
from typing import Any

from paceline.base.errors import UserError
from paceline.base.families.family import load_family
from paceline.base.files.own_code import INDEX, INSTALLED, OWN_CODE
from paceline.base.techniques.technique import TechniqueSource
from paceline.records.store.storage import storage_errors
from paceline.spec.content import baseline_files, sha256_file
from paceline.spec.own.code import all_code
from paceline.spec.plans.plan import Plan
from paceline.spec.suites.suite import Suite

ENGINE_FILES = ("__init__.py",)
ENGINE_FOLDERS = ("base", "worker", "families", "baselines")

RUN_SCRIPT = """#!/bin/sh
# Executes this job with torch and numpy only, on any Python from 3.11 on:
#   sh run.sh                (or PYTHON=/path/to/python sh run.sh)
# Run it again after an interruption: it does what is still missing.
cd "$(dirname "$0")" || exit 3
# In front: what vendors put there, such as CANN's compiler, stays, and nothing takes the engine's place.
PYTHONPATH="$PWD/engine${PYTHONPATH:+:$PYTHONPATH}"
PYTHONDONTWRITEBYTECODE=1
export PYTHONPATH PYTHONDONTWRITEBYTECODE
"${PYTHON:-python3}" -c 'import sys, importlib.util as i; sys.exit(not all(map(i.find_spec, ("torch", "numpy"))))' || {
    echo "${PYTHON:-python3} has no torch or no numpy: PYTHON=/path/to/python sh run.sh" >&2
    exit 2
}
unset PACELINE_CONTENT
exec "${PYTHON:-python3}" -m paceline.worker.launch "$PWD"
"""


def build_job(folder: Path, plan: Plan, suites: Iterable[Suite], facts: Mapping[str, Any]) -> None:
    """Write a self-contained job folder.

    Args:
        folder: Must not exist yet.
        plan: What to run.
        suites: The plan's suites, for their technique sources.
        facts: What ``collect`` will need to make a record: run id, argv, code, suites, techniques.

    Raises:
        UserError: The folder exists.
    """
    if folder.exists():
        raise UserError("the job folder exists already", where=str(folder), expected="a new path")
    with storage_errors(folder):
        try:
            _write_job(folder, plan, suites, facts)
        except OSError:
            shutil.rmtree(folder, ignore_errors=True)
            raise


def _write_job(folder: Path, plan: Plan, suites: Iterable[Suite], facts: Mapping[str, Any]) -> None:
    folder.mkdir(parents=True)
    _copy_engine(folder / "engine" / "paceline", _families_in_use(plan))
    suites = list(suites)
    copied = _copy_techniques(folder, plan, suites) | _copy_code(folder, plan, suites)
    (folder / "plan.json").write_text(plan.text)
    (folder / "job.json").write_text(json.dumps({**facts, "files": copied}, indent=1, sort_keys=True))
    script = folder / "run.sh"
    script.write_text(RUN_SCRIPT)
    script.chmod(0o755)


def _families_in_use(plan: Plan) -> set[str]:
    """Return the plan's families, and those whose files its operations borrow."""
    found: set[str] = set()
    for block in plan.blocks:
        family = load_family(block["family"])
        lender = family.lender(str(block["params"].get(family.operation_key)))
        found |= {family.name} | ({lender} if lender else set())
    return found


def _copy_engine(target: Path, families: Set[str]) -> None:
    """Copy the worker's half; what is no code, such as weights, only of the families in use."""
    package = Path(__file__).resolve().parents[1]
    others = tuple(
        f"{folder}{os.sep}"
        for folder in (package / "families").iterdir()
        if folder.is_dir() and folder.name not in families
    )

    def left_out(folder: str, names: list[str]) -> list[str]:
        no_data = f"{folder}{os.sep}".startswith(others)
        return [
            name
            for name in names
            if name == "__pycache__"
            or name.endswith(".pyc")
            or (no_data and "." in name and not name.endswith(".py"))
        ]

    target.mkdir(parents=True)
    for name in ENGINE_FILES:
        shutil.copyfile(package / name, target / name)
    for name in ENGINE_FOLDERS:
        shutil.copytree(package / name, target / name, ignore=left_out, copy_function=shutil.copyfile)


def _copy_techniques(folder: Path, plan: Plan, suites: Iterable[Suite]) -> dict[str, str]:
    """Copy the files of the techniques in use (and their neighbours, which they may build on)."""
    used = {(b["family"], c["technique"]) for b in plan.blocks for c in b["cases"]}
    copied: dict[str, str] = {}
    origin: dict[Path, Path] = {}
    for suite in suites:
        for name, source in suite.sources.items():
            if (suite.family.name, name) in used:
                for path, target in _files_of(source, suite.family.name, folder):
                    target.parent.mkdir(parents=True, exist_ok=True)
                    if origin.setdefault(target, path) != path and sha256_file(target) != sha256_file(path):
                        raise UserError(
                            f"two technique files are called {target.name}: {origin[target]} is another",
                            where=str(path),
                            expected="file names that are unique within a family",
                        )
                    shutil.copyfile(path, target)
                    copied[str(target.relative_to(folder))] = sha256_file(target)
    return copied


def _copy_code(folder: Path, plan: Plan, suites: Iterable[Suite]) -> dict[str, str]:
    """Copy the user's own code that points name, with an index of what is where.

    Raises:
        UserError: A file was changed since the plan was made.
    """
    copied: dict[str, str] = {}
    for suite in suites:
        for digest, code in all_code(suite, plan.blocks).items():
            target = folder / OWN_CODE / digest
            for name, path in code.files.items():
                if not name.startswith(INSTALLED):
                    (target / name).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(path, target / name)
                    copied[f"{OWN_CODE}/{digest}/{name}"] = sha256_file(target / name)
            if code.digest != digest:
                raise UserError(
                    "the code that the suite names was changed while it was planned",
                    where=str(suite.path),
                    fix="run the command again",
                )
            target.mkdir(parents=True, exist_ok=True)
            (target / INDEX).write_text(code.index(suite.code_folder or suite.path.resolve().parent))
            copied[f"{OWN_CODE}/{digest}/{INDEX}"] = sha256_file(target / INDEX)
    return copied


def _files_of(source: TechniqueSource, family: str, folder: Path) -> list[tuple[Path, Path]]:
    if source.module.startswith("user:"):
        return [
            (source.path, folder / "user" / f"{source.module.removeprefix('user:')}.py"),
            *(
                (path, folder / "baselines" / other / path.name)
                for other in sorted(_other_families(source.path))
                for path in baseline_files(other)
            ),
        ]
    prefix = f"paceline.baselines.{family}."
    if source.module.startswith(prefix):
        folders = {family: source.path.parent} | {
            other: source.path.parents[1] / other for other in _other_families(source.path)
        }
        return [
            (p, folder / "baselines" / name / p.name)
            for name, place in folders.items()
            for p in sorted(place.glob("*.py"))
        ]
    top = source.module.split(".")[0]
    root = next((p for p in source.path.parents if p.name == top), source.path.parent)
    if root.name != top:
        return [(source.path, folder / "engine" / source.path.name)]
    return [(p, folder / "engine" / top / p.relative_to(root)) for p in sorted(root.rglob("*.py"))]


def _other_families(path: Path) -> set[str]:
    """Return the families whose techniques a technique imports."""
    imported = [n.module for n in ast.walk(ast.parse(path.read_bytes())) if isinstance(n, ast.ImportFrom)]
    parts = [module.split(".") for module in imported if module and module.startswith("paceline.baselines.")]
    return {p[2] for p in parts}


def read_job(folder: Path) -> tuple[Plan, dict[str, Any]]:
    """Return a job folder's plan and the controller's facts.

    Raises:
        UserError: It is not a job folder, or its plan or a technique does not fit the digest in its facts.
    """
    try:
        plan = Plan(data=json.loads((folder / "plan.json").read_text()))
        facts = json.loads((folder / "job.json").read_text())
    except (OSError, ValueError) as error:
        raise UserError(
            f"not a job folder: {error}",
            where=str(folder),
            fix="paceline job export SUITE … --output DIR",
        ) from error
    if not isinstance(facts, dict) or not isinstance(facts.get("run_id"), str):
        fix = "paceline job export SUITE … --output DIR"
        raise UserError("it names no run", where=str(folder / "job.json"), fix=fix)
    if plan.sha256 != facts.get("plan_sha256"):
        raise UserError("the plan was changed after the job was made", where=str(folder / "plan.json"))
    for name, digest in dict(facts.get("files") or {}).items():
        _check_file(folder, name, str(digest), facts)
    return plan, facts


def _check_file(folder: Path, name: str, digest: str, facts: Mapping[str, Any]) -> None:
    """Make sure that a file of a job is the one that was copied into it.

    Raises:
        UserError: It lies outside, is gone, or is another one.
    """
    path = folder / name
    inside = ".." not in Path(name).parts
    now = sha256_file(path) if inside and path.is_file() else None
    if now == digest:
        return
    what = f"is another file now: sha256 {now[:12]}…, not {digest[:12]}…" if now else "is gone"
    suites = (
        " ".join(str(s.get("suite")) for s in facts.get("suites") or () if isinstance(s, dict)) or "SUITE …"
    )
    raise UserError(
        f"a technique of this job is not the file that was exported: {name} {what}",
        where=str(path),
        expected=f"sha256 {digest}",
        fix="put the file back as it was when the job was made; or measure anew what is there now: "
        f"paceline run {suites}, or paceline job export {suites} --output DIR",
    )
