"""Whether our grader says of answers what other people's graders said: ``python benchmarks/graded_by_others.py FILE…``.

Each FILE has published answers of models with a verdict on each, a JSON object a line, in one of two layouts:

- ``example_model_solutions.jsonl`` of github:openai/grade-school-math: of each model ``solution`` and ``is_correct``;
- ``math_cot_100.jsonl`` of github:QwenLM/Qwen2.5-Math: lists ``code`` of answers and ``score``, the truth in ``gt``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from paceline.families.reasoning.core.answers.text import Kind
from paceline.families.reasoning.core.grading.free_text import Grader

MOST_SHOWN = 20


class Judged(NamedTuple):
    """An answer of a model, and what somebody else's grader said."""

    text: str
    truth: str
    right: bool


def judged(row: dict[str, Any]) -> tuple[Kind, list[Judged]]:
    """Return a row's answers, and what kind of answer they are.

    Raises:
        ValueError: It is in neither layout.
    """
    if "ground_truth" in row:
        truth = row["ground_truth"].rpartition("A:")[2].strip().replace(",", "")
        found = [v for v in row.values() if isinstance(v, dict)]
        return "number", [Judged(v["solution"], truth, v["is_correct"]) for v in found]
    if {"code", "score", "gt"} <= row.keys():
        answers = zip(row["code"], row["score"], strict=True)
        return "math", [Judged(text, row["gt"], right) for text, right in answers]
    raise ValueError(f"a row has {', '.join(row)}: neither layout that the head of this file names")


def compared(path: Path) -> Iterator[str]:
    """Yield what a file says, and where the two graders differ."""
    rows = [judged(json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]
    (kind,) = {kind for kind, _ in rows}
    answers = [answer for _, found in rows for answer in found]
    with Grader(kind) as grader:
        read = grader.extract_all([a.text for a in answers])
        ours = grader.equal_all([(answer, a.truth) for answer, a in zip(read, answers, strict=True)])
    apart = [place for place, a in enumerate(answers) if a.right != ours[place]]
    yield f"{path.name}: {len(answers) - len(apart)} of {len(answers)} answers graded alike"
    for place in apart[:MOST_SHOWN]:
        said = "right" if ours[place] else "wrong"
        yield f"  we say {said}, they do not: read {read[place]!r}, truth {answers[place].truth!r}"


def main() -> None:
    """Print what each file says."""
    for name in sys.argv[1:]:
        for line in compared(Path(name)):
            print(line)


if __name__ == "__main__":
    main()
