"""Makes a block's setting: loads its models, and draws its questions."""

from __future__ import annotations

import random

from paceline.families.reasoning.language import LanguageModel
from paceline.families.reasoning.pairs import load_judge
from paceline.families.reasoning.problems import draw
from paceline.families.reasoning.reading import Procedural
from paceline.families.reasoning.reasoner import load
from paceline.families.reasoning.requests import Task
from paceline.families.reasoning.setting import Setting
from paceline.families.reasoning.spec import NO_PARTNER, levels_of
from paceline.worker.session import Block, Session


def make_setting(session: Session, block: Block) -> Setting:
    """Return what the techniques of a block share."""
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
        task=Task(
            samples=int(params["samples"]), temperature=float(params["temperature"]), context=model.context
        ),
        asked=reading.asked,
        reading=reading,
        seed=session.draw_seed("traces", block.block),
        width=int(params["width"]),
        num_orders=int(params["orders"]),
    )


def _embedded(session: Session, name: str) -> LanguageModel:
    """Return a reasoner, loaded once in a process."""
    models: dict[str, LanguageModel] = session.facts.setdefault("reasoners", {})
    if name not in models:
        models[name] = load(name)
    return models[name]
