"""The corpus of answers: what models write, with a person's verdict; a part of it is held out of the reader's rules."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import cast

from paceline.base.errors import UserError
from paceline.families.reasoning.core.answers.text import CHOICES, KINDS, Kind
from paceline.spec.files.yaml_file import Located, load

FOLDER = Path(__file__).with_name("answers")
HELD_OUT, OPEN, LATER = "held-out", "open", "later"
SPLITS = (HELD_OUT, OPEN, LATER)
VERDICTS = ("right", "wrong")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One answer of the corpus."""

    split: str
    kind: str
    """Of question or fault, such as ``matrices``."""
    right: bool
    """What a person says."""
    reads: Kind
    """How it is read."""
    gold: str
    text: str
    choices: str


def answers(folder: Path = FOLDER) -> list[Answer]:
    """Return the corpus, held-out answers first.

    Raises:
        UserError: A file or a row of it is not of the form that ``held-out.yaml`` describes.
    """
    return [one for split in SPLITS for one in _of_file(load(folder / f"{split}.yaml"), split)]


def _of_file(file: Located, split: str) -> list[Answer]:
    if not isinstance(file.data, dict) or file.data.get("split") != split or not file.data.get("kinds"):
        raise UserError(
            "it is no split of the corpus", where=str(file.path), expected=f"split: {split}, kinds: …"
        )
    return [
        _answer(file, split, kind, place, row)
        for kind, rows in file.data["kinds"].items()
        for place, row in enumerate(rows)
    ]


def _answer(file: Located, split: str, kind: str, place: int, row: object) -> Answer:
    fields = row if isinstance(row, list) and all(isinstance(one, str) for one in row) else []
    if len(fields) not in (4, 5) or fields[0] not in VERDICTS or fields[1] not in KINDS:
        raise UserError(
            "it is no answer of the corpus",
            where=file.where(("kinds", kind, place)),
            expected=f"[{' or '.join(VERDICTS)}, {' or '.join(KINDS)}, gold, text], and letters of choices",
        )
    choices = fields[4] if len(fields) == 5 else CHOICES
    return Answer(
        split=split,
        kind=kind,
        right=fields[0] == "right",
        reads=cast(Kind, fields[1]),
        gold=fields[2],
        text=fields[3],
        choices=choices,
    )
