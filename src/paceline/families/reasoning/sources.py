"""Makes a block's setting: loads its models, and draws its questions."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from paceline.families.reasoning.backends import pretrained
from paceline.families.reasoning.backends.openai_model import OpenAIModel
from paceline.families.reasoning.grading import Grader
from paceline.families.reasoning.language import LanguageModel
from paceline.families.reasoning.outside import Outside
from paceline.families.reasoning.pairs import load_judge
from paceline.families.reasoning.problem_files import draw as draw_texts
from paceline.families.reasoning.problem_files import read
from paceline.families.reasoning.problems import draw
from paceline.families.reasoning.reading import Procedural
from paceline.families.reasoning.reasoner import load
from paceline.families.reasoning.requests import Task
from paceline.families.reasoning.setting import Setting
from paceline.families.reasoning.spec import (
    ALL_LEVELS,
    KINDS,
    NO_PARTNER,
    PROCEDURAL,
    is_embedded,
    levels_of,
)
from paceline.families.reasoning.textual import Textual
from paceline.worker.session import Block, Session


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
    model, partner = _embedded(session, str(params["model"])), str(params["partner"])
    problems = draw(
        session.draw_seed("problems", block.block),
        int(params["questions"]),
        levels=levels_of(str(params["levels"])),
    )
    random.Random(session.draw_seed("places", block.block)).shuffle(problems)
    reading = Procedural(problems)
    return Setting(
        model=model,
        partner=None if partner == NO_PARTNER else _embedded(session, partner),
        judge=load_judge(),
        task=_task(block, model),
        asked=reading.asked,
        reading=reading,
        seed=session.draw_seed("traces", block.block),
        width=int(params["width"]),
        num_orders=int(params["orders"]),
    )


def _textual(session: Session, block: Block, format_name: str, source: str, grader: Grader) -> Setting:
    params = block.params
    model = _foreign(session, str(params["model"]), int(params["context"]))
    levels = str(params["levels"])
    with _with_secrets(session):
        known = read(format_name, source)
    problems = draw_texts(
        known,
        session.draw_seed("problems", block.block),
        int(params["questions"]),
        levels=None if levels == ALL_LEVELS else levels_of(levels),
    )
    reading = Textual(model, problems, grader, session.guard.outside)
    return Setting(
        model=Outside(model, session.guard.outside),
        task=_task(block, model),
        asked=reading.asked,
        reading=reading,
        seed=session.draw_seed("traces", block.block),
        width=int(params["width"]),
        num_orders=int(params["orders"]),
        repeatable=model.repeatable,
    )


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
            os.environ.pop(name, None)
