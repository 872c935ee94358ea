"""How techniques that run in a process of their own are asked, and what becomes of their answers."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from paceline.base.errors import PacelineError
from paceline.worker.session import Block, Case, CaseError, Session

CHILD_S = 600.0


def each_case(session: Session, block: Block, one: Callable[[Case], dict[str, Any]]) -> None:
    """Emit a result or a failure for every technique of a block; what one of them does leaves the others alone."""
    for case in block.cases:
        session.begin(block, case.label, str(block.params["op"]))
        try:
            session.loaded(case)
            session.emit_result(block, case, one(case))
        except CaseError as error:
            session.emit_failure(block, case, error)
        except (MemoryError, PacelineError):
            raise
        except Exception as error:
            detail = traceback.format_exc(limit=8)
            session.emit_failure(
                block, case, CaseError("crashed", f"{type(error).__name__}: {error}", detail)
            )


def ask(session: Session, case: Case, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Let a technique answer in a process of its own.

    Raises:
        CaseError: It was refused, failed, or took too long.
    """
    document = {
        "module": case.module,
        "technique": case.technique,
        "options": dict(case.options),
        **asked,
    }
    command = [sys.executable, "-m", "paceline.families.serving.simulation"]
    try:
        done = subprocess.run(
            command, input=json.dumps(document), capture_output=True, text=True, timeout=CHILD_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise CaseError("crashed", f"it took longer than {CHILD_S:.0f} s") from error
    try:
        answer = dict(json.loads(done.stdout))
    except ValueError as error:
        said = (done.stdout + done.stderr)[-2000:]
        raise CaseError("crashed", f"its process ended with {done.returncode} and no answer", said) from error
    if answer.get("status") != "ok":
        raise CaseError(str(answer["status"]), str(answer["reason"]), answer.get("detail"))
    return answer


def result(
    metrics: Mapping[str, float],
    *,
    checks: int,
    oracle: str,
    accounting: Mapping[str, Any],
    artifacts: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return the event of a technique that passed; every metric is one number of the launch."""
    return {
        "status": "ok",
        "metrics": {name: {"samples": [value]} for name, value in metrics.items()},
        "absent": {},
        "correctness": {"passed": True, "oracle": oracle, "gate_checks": checks},
        "accounting": dict(accounting),
        **({"artifacts": dict(artifacts)} if artifacts else {}),
    }


def keep(log: Mapping[str, Any], session: Session, block: Block, case: Case) -> str:
    """Leave the whole log in a file that goes with the record."""
    folder = Path.cwd() / "artifacts"
    folder.mkdir(exist_ok=True)
    path = folder / f"simulation-{session.launch}-{block.block}-{case.case_id}.json.gz"
    path.write_bytes(gzip.compress(json.dumps(log).encode(), mtime=0))
    return path.name
