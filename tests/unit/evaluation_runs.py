"""Evaluations as tests call them: the command's own options, in this process, against a server of known truth."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from paceline.cli.measuring.evaluate import evaluate
from paceline.families.reasoning.core.problems.files import TextProblem, read
from paceline.workflows.evaluation.evaluating import Done, evaluate_as_asked


def sums(folder: Path, count: int = 6) -> Path:
    """Write questions in GSM8K's layout."""
    path = folder / "sums.jsonl"
    lines = (
        json.dumps(
            {
                "question": f"Ann has {i + 2} apples and buys {3 * i + 1} more. How many now?",
                "answer": f"So:\n#### {4 * i + 3}",
            }
        )
        for i in range(count)
    )
    path.write_text("\n".join(lines) + "\n")
    return path


def problems(path: Path) -> tuple[TextProblem, ...]:
    """Return the questions of such a file."""
    return read("gsm8k", str(path))


def run(*arguments: str, said: list[str] | None = None) -> Done:
    """Evaluate by the options of a command line."""
    options: dict[str, Any] = evaluate.make_context("evaluate", list(arguments)).params
    return evaluate_as_asked(options, say=(said if said is not None else []).append)


def lines(folder: Path, kind: str) -> Iterator[dict[str, Any]]:
    """Yield the lines of a kind of a journal."""
    for text in (folder / "journal.jsonl").read_text().splitlines():
        line = json.loads(text)
        if line["kind"] == kind:
            yield line
