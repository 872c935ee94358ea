"""Makes a block's setting: loads its models, and draws its questions."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from paceline.families.reasoning.api.requests import Task
from paceline.families.reasoning.core.backends import pretrained
from paceline.families.reasoning.core.backends.openai_model import OpenAIModel
from paceline.families.reasoning.core.block import recorded
from paceline.families.reasoning.core.block.recorded import Remembered
from paceline.families.reasoning.core.block.setting import Setting
from paceline.families.reasoning.core.grading.free_text import Grader
from paceline.families.reasoning.core.language import LanguageModel
from paceline.families.reasoning.core.outside import Outside
from paceline.families.reasoning.core.pairs import load_judge
from paceline.families.reasoning.core.planning.naming import (
    ALL_LEVELS,
    KINDS,
    NO_PARTNER,
    PROCEDURAL,
    RECORDED,
    is_embedded,
    levels_of,
)
from paceline.families.reasoning.core.problems.embedded import draw
from paceline.families.reasoning.core.problems.files import draw as draw_texts
from paceline.families.reasoning.core.problems.files import read_all
from paceline.families.reasoning.core.questions.reading import Procedural
from paceline.families.reasoning.core.questions.textual import Textual, Writer
from paceline.families.reasoning.core.reasoner import load
from paceline.families.reasoning.core.recordings.trace_files import TraceFile
from paceline.worker.ranks.session import Block, Session


@contextmanager
def block_setting(session: Session, block: Block) -> Iterator[Setting]:
    """Make what the techniques of a block share; what it starts ends with the context.

    Raises:
        UserError: A model or a file of problems cannot be read.
    """
    if str(block.params["problems"]) == PROCEDURAL:
        yield _procedural(session, block)
        return
    name, _, source = str(block.params["problems"]).partition(":")
    with Grader(KINDS[name]) as grader:
        yield _textual(session, block, name, source, grader)


def _procedural(session: Session, block: Block) -> Setting:
    params = block.params
    file = _recorded(session, block)
    seeds = _seeds(session, block, file)
    model, partner = _known_models(session, block) if file is None else recorded.models_of(file)
    problems = draw(seeds["problems"], int(params["questions"]), levels=levels_of(str(params["levels"])))
    # Levels are drawn in turn, so that a question's number would tell its level.
    random.Random(seeds["places"]).shuffle(problems)
    reading = Procedural(problems)
    if file is not None:
        recorded.check_questions(file, reading.asked)
    return Setting(
        model=model,
        partner=partner,
        judge=load_judge(),
        task=_task(block, model),
        asked=reading.asked,
        reading=reading,
        seeds=seeds,
        width=int(params["width"]),
        num_orders=int(params["orders"]),
        timed=file is None,
        recorded_sha256=None if file is None else file.sha256,
    )


def _textual(session: Session, block: Block, format_name: str, source: str, grader: Grader) -> Setting:
    params = block.params
    file = _recorded(session, block)
    seeds = _seeds(session, block, file)
    levels = str(params["levels"])
    with _with_secrets(session):
        known = read_all(format_name, source)
    problems = draw_texts(
        known.problems,
        seeds["problems"],
        int(params["questions"]),
        levels=None if levels == ALL_LEVELS else levels_of(levels),
    )
    model: LanguageModel
    writer: Writer
    if file is None:
        foreign = _foreign(session, str(params["model"]), int(params["context"]))
        repeatable = timed = bool(foreign.repeatable)
        model, writer = Outside(foreign, session.guard.outside), Remembered(foreign)
    else:
        repeatable, timed = True, False
        (model, _), writer = recorded.models_of(file), recorded.writer_of(file)
    # Grading starts processes, which the fences would hold against the technique that waits for it.
    reading = Textual(writer, problems, grader, session.guard.outside, known.facts())
    if file is not None:
        recorded.check_questions(file, reading.asked)
    return Setting(
        model=model,
        task=_task(block, model),
        asked=reading.asked,
        reading=reading,
        seeds=seeds,
        width=int(params["width"]),
        num_orders=int(params["orders"]),
        repeatable=repeatable,
        timed=timed,
        writer=writer,
        recorded_sha256=None if file is None else file.sha256,
    )


def _known_models(session: Session, block: Block) -> tuple[LanguageModel, LanguageModel | None]:
    name = str(block.params["partner"])
    partner = None if name == NO_PARTNER else _embedded(session, name)
    return _embedded(session, str(block.params["model"])), partner


def _recorded(session: Session, block: Block) -> TraceFile | None:
    """Return the traces that stand for a model, where the point names some."""
    if not str(block.params["model"]).startswith(RECORDED):
        return None
    return recorded.source(block.params, session.launch)


def _seeds(session: Session, block: Block, file: TraceFile | None) -> Mapping[str, int]:
    if file is not None:
        return dict(file.header["seeds"])
    return {name: session.draw_seed(name, block.block) for name in ("problems", "places", "traces")}


def _task(block: Block, model: LanguageModel) -> Task:
    params = block.params
    return Task(
        samples=int(params["samples"]), temperature=float(params["temperature"]), context=model.context
    )


def _embedded(session: Session, name: str) -> LanguageModel:
    """Return a reasoner, loaded once in a process."""
    models: dict[str, LanguageModel] = session.facts.setdefault("reasoners", {})
    if name not in models:
        models[name] = load(name)
    return models[name]


def _foreign(session: Session, name: str, context: int) -> Any:
    """Return a model of other people, loaded once in a process."""
    models: dict[tuple[str, int], Any] = session.facts.setdefault("foreign_models", {})
    if (name, context) not in models:
        assert not is_embedded(name)
        kind, _, where = name.partition(":")
        with _with_secrets(session):
            models[name, context] = _load(session, kind, where, context)
    return models[name, context]


def _load(session: Session, kind: str, where: str, context: int) -> Any:
    if kind == "transformers":
        return pretrained.load(where, device=session.device.torch_type, context=context)
    url, _, model = where.rpartition("#")
    return OpenAIModel(model, url, context=context)


@contextmanager
def _with_secrets(session: Session) -> Iterator[None]:
    """Put keys into the environment, where libraries look for them; no technique runs meanwhile."""
    os.environ.update(session.secrets)
    try:
        yield
    finally:
        for name in session.secrets:
            # Taken out again before any technique runs in this process.
            os.environ.pop(name, None)
