"""Traces of an earlier run in the place of a model: any rule can be tried on them, with no network at hand.

A run keeps every trace of a block with what asks and reads its questions. Here they answer again; what a rule asks for
beyond them was never drawn, and nobody can draw it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from paceline.base.counting import number_of
from paceline.base.errors import UserError
from paceline.families.reasoning.core.backends import pretrained
from paceline.families.reasoning.core.backends.token_texts import Texts
from paceline.families.reasoning.core.block.pool import Pool
from paceline.families.reasoning.core.block.setting import Archives, Setting
from paceline.families.reasoning.core.language import LanguageModel
from paceline.families.reasoning.core.planning.naming import RECORDED
from paceline.families.reasoning.core.problems.embedded import VOCABULARY
from paceline.families.reasoning.core.questions.reading import Asked
from paceline.families.reasoning.core.questions.textual import Writer
from paceline.families.reasoning.core.recordings.archive import Archive
from paceline.families.reasoning.core.recordings.replay import Replay
from paceline.families.reasoning.core.recordings.trace_files import (
    ENDING,
    MAX_VALUES,
    MODEL,
    PARTNER,
    TraceFile,
    num_values,
    read,
    read_header,
    save,
)

FOLDER = Path("artifacts")
"""Where a rank leaves files that go with the record, in the job's folder."""
SAME = ("problems", "questions", "levels", "temperature", "partner", "context")
"""Parameters of a point that must be those of the recording."""


class Remembered:
    """A model's tokenizer that remembers what it was asked to write as tokens; implements ``Writer``."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self.encoded: dict[str, tuple[int, ...]] = {}
        self.prompts: dict[str, tuple[int, ...]] = {}

    def encode(self, text: str) -> tuple[int, ...]:
        """Return a text's tokens."""
        return self.encoded.setdefault(text, self._writer.encode(text))

    def chat(self, question: str) -> tuple[int, ...]:
        """Return a prompt that asks a question."""
        return self.prompts.setdefault(question, self._writer.chat(question))

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens."""
        return self._writer.decode(tokens)

    def facts(self) -> dict[str, Any]:
        """Return what ``RecordedWriter`` needs."""
        texts = getattr(self._writer, "texts", None)
        known = {"encoded": self.encoded, "prompts": self.prompts}
        return known if texts is None else {**known, "texts": texts}


class RecordedWriter:
    """Writes and reads what was written and read before; implements ``Writer``.

    Args:
        known: What ``Remembered`` knew.
        model: Which model that was; a local one's tokenizer is loaded again, of an endpoint texts are known.
    """

    def __init__(self, known: Mapping[str, Any], model: str) -> None:
        self._known = known
        self._decode: Callable[[Sequence[int]], str] = (
            Texts(known["texts"]).text
            if "texts" in known
            else pretrained.load_decoder(model.partition(":")[2])
        )

    def encode(self, text: str) -> tuple[int, ...]:
        """Return a text's tokens, as they were.

        Raises:
            UserError: Nobody has written it.
        """
        return self._written("encoded", text)

    def chat(self, question: str) -> tuple[int, ...]:
        """Return the prompt that asked a question.

        Raises:
            UserError: Nobody has asked it.
        """
        return self._written("prompts", question)

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens."""
        return self._decode(tokens)

    def _written(self, kind: str, text: str) -> tuple[int, ...]:
        if text not in self._known[kind]:
            raise other_problems(text)
        return tuple(self._known[kind][text])


def other_problems(text: str) -> UserError:
    """Return the error of traces that do not belong to what is asked."""
    return UserError(
        "the recorded traces are of other problems, or of another version of this family",
        where=repr(text[:80]),
        expected="the very file or revision of problems, and the version, that they were recorded with",
    )


def check_questions(file: TraceFile, asked: Sequence[Asked]) -> None:
    """Compare questions with those that a file's traces answer.

    Raises:
        UserError: They are others.
    """
    recorded = [tuple(one["prompt"]) for one in file.header["questions"]]
    for number, one in enumerate(asked):
        if number >= len(recorded) or recorded[number] != one.script.prompt:
            raise other_problems(one.question)


def source(params: Mapping[str, Any], launch: int) -> TraceFile:
    """Return the recorded traces that a launch of a point is tried on.

    Raises:
        UserError: There are none, or they are of another point.
    """
    name = str(params["model"]).removeprefix(RECORDED)
    # A folder's own name may have a # in it.
    folder, _, model = (name, "", "") if Path(name).exists() else name.rpartition("#")
    place = Path(folder or name)
    paths = sorted(place.glob(f"*{ENDING}")) if place.is_dir() else [place]
    found = {path: read_header(path) for path in paths if path.is_file()}
    fitting = [
        path
        for path, header in found.items()
        if header["launch"] == launch
        and (not model or header["params"]["model"] == model)
        and not _differences(header["params"], params)
    ]
    if len(fitting) == 1:
        return read(fitting[0])
    if fitting:
        raise UserError(
            f"{len(fitting)} of the recorded traces are of launch {launch} of this point, of "
            + ", ".join(sorted(str(found[path]["params"]["model"]) for path in fitting)),
            where=str(place),
            expected="one; a model's name behind # chooses, as in recorded:FOLDER#strong",
            fix="add the model's name, or move files of other suites elsewhere",
        )
    if not found:
        raise UserError(
            "there are no recorded traces",
            where=str(place),
            expected=f"a folder with files that end in {ENDING}, or one of them",
            fix="paceline run keeps them in the folder beside its record that has the record's name",
        )
    known = "; ".join(
        f"{path.name}: launch {header['launch']} of {header['params']['model']}"
        + "".join(f", {d}" for d in _differences(header["params"], params))
        for path, header in list(found.items())[:8]
    )
    raise UserError(
        f"none of the recorded traces is of launch {launch} of this point; {known}",
        where=str(place),
        expected=f"the same {', '.join(SAME)}, and samples up to those recorded",
        fix="set these in the suite's workload, and --launches to how many were recorded",
    )


def _differences(recorded: Mapping[str, Any], asked: Mapping[str, Any]) -> list[str]:
    found = [
        f"{name} {recorded[name]} and not {asked[name]}" for name in SAME if recorded[name] != asked[name]
    ]
    # Fewer samples are the first ones of those recorded; more were never drawn.
    if int(recorded["samples"]) < int(asked["samples"]):
        found.append(f"{number_of(recorded['samples'], 'sample')} and not {asked['samples']}")
    return found


def models_of(file: TraceFile) -> tuple[LanguageModel, LanguageModel | None]:
    """Return who answers from a file: the model, and its partner where it had one."""
    found = {
        role: Replay(archive, context=int(facts["context"]), num_parameters=facts["num_parameters"])
        for role, archive in file.archives.items()
        for facts in (file.header["models"][role],)
    }
    return found[MODEL], found.get(PARTNER)


def writer_of(file: TraceFile) -> Writer:
    """Return what reads a file's tokens.

    Raises:
        UserError: They are of a local model whose tokenizer is not there any more.
    """
    return RecordedWriter(file.header["writer"], str(file.header["params"]["model"]))


def header_of(
    setting: Setting, pool: Pool, *, suite: str, launch: int, params: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what a file of a setting's traces says of itself."""
    models = {MODEL: setting.model, PARTNER: setting.partner}
    return {
        "suite": suite,
        "launch": launch,
        "params": dict(params),
        "seeds": dict(setting.seeds),
        "models": {
            role: {"context": model.context, "num_parameters": model.num_parameters}
            for role, model in models.items()
            if model is not None
        },
        "writer": setting.writer.facts() if isinstance(setting.writer, Remembered) else None,
        "vocabulary": _vocabulary(setting.writer),
        "questions": [
            {"level": one.level, "question": one.question, "answer": one.truth, "prompt": one.script.prompt}
            for one in setting.asked
        ],
        "answers": pool.answers,
        "right": [
            [a is not None and setting.reading.right(number, a) for a in given]
            for number, given in enumerate(pool.answers)
        ],
    }


def _vocabulary(writer: Writer | None) -> dict[str, Any] | None:
    """Return each token's text and what stands between two; None where the tokenizer alone can tell."""
    if writer is None:
        return {"symbols": VOCABULARY, "between": " "}
    texts = writer.facts().get("texts") if isinstance(writer, Remembered) else None
    return None if texts is None else {"symbols": texts, "between": ""}


def write_traces(path: Path, header: Mapping[str, Any], all_traces: Archives) -> tuple[str | None, str]:
    """Write a block's traces to a file and return its SHA-256; None, with the reason, where that cannot be done."""
    archives: dict[str, Archive] = {MODEL: all_traces.model}
    if all_traces.partner is not None:
        archives[PARTNER] = all_traces.partner
    count = sum(num_values(archive) for archive in archives.values())
    # Nothing rather than a part: a rule tried on some of the questions would look like a result.
    if count > MAX_VALUES:
        return None, f"{number_of(count, 'token')} with those before them; a file keeps {MAX_VALUES}"
    try:
        return save(path, header, archives), ""
    except (OSError, MemoryError, ValueError, OverflowError) as error:
        return None, f"they could not be written: {type(error).__name__}: {error}"
