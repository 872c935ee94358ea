"""How a technique that runs in a process of its own is asked."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from paceline.families.serving.core import early
from paceline.worker.channel import ChannelClosedError
from paceline.worker.ranks.session import Case, CaseError

CHILD_S = 600.0


def ask(case: Case, child: str, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Let a technique answer in a process of its own.

    Args:
        case: The technique.
        child: The module that is the process: it calls ``child.main``.
        asked: What the process is told besides.

    Raises:
        CaseError: It was refused, failed, or took too long.
    """
    document = {
        "module": case.module,
        "technique": case.technique,
        "options": dict(case.options),
        **asked,
    }
    try:
        done = early.run(child, json.dumps(document), CHILD_S)
    except TimeoutError as error:
        raise CaseError("crashed", f"it took longer than {CHILD_S:.0f} s") from error
    except ChannelClosedError as error:
        raise CaseError("infrastructure", f"no process could be forked for it: {error}") from error
    try:
        answer = dict(json.loads(done.output))
    # No JSON, which means that the process died: everything that it could catch it would have told.
    except ValueError as error:
        said = (done.output + done.errors)[-2000:]
        raise CaseError("crashed", f"its process ended with {done.code} and no answer", said) from error
    if answer.get("status") != "ok":
        raise CaseError(str(answer["status"]), str(answer["reason"]), answer.get("detail"))
    return answer
