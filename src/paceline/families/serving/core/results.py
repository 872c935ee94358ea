"""What becomes of a block's techniques: a result or a failure each, and the files that go with records."""

from __future__ import annotations

import gzip
import json
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from paceline.base.errors import PacelineError
from paceline.worker.ranks.session import Block, Case, CaseError, Session


def each_case(session: Session, block: Block, one: Callable[[Case], dict[str, Any]]) -> None:
    """Emit a result or a failure for every technique of a block; what one of them does leaves the others alone."""
    for case in block.cases:
        session.begin(block, case.label, str(block.params["op"]))
        try:
            session.loaded(case)
            session.emit_result(block, case, one(case))
        except CaseError as error:
            session.emit_failure(block, case, error)
        # Of the machine or of the harness: no failure of one technique, so the launch ends.
        except (MemoryError, PacelineError):
            raise
        except Exception as error:
            detail = traceback.format_exc(limit=8)
            session.emit_failure(
                block, case, CaseError("crashed", f"{type(error).__name__}: {error}", detail)
            )


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


def write_log(log: Mapping[str, Any], session: Session, block: Block, case: Case) -> str:
    """Leave the whole log in a file that goes with the record."""
    folder = Path.cwd() / "artifacts"
    folder.mkdir(exist_ok=True)
    path = folder / f"simulation-{session.launch}-{block.block}-{case.case_id}.json.gz"
    # No time in the header: the same log gives the same digest in the record.
    path.write_bytes(gzip.compress(json.dumps(log).encode(), mtime=0))
    return path.name
