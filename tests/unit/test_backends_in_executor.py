"""The executor answers questions on both kinds of foreign models, and counts their tokens."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest
import tiny_networks
import torch
from openai_server import running

from paceline.families.reasoning.api.requests import (
    Drop,
    Extend,
    Finished,
    Fork,
    Plan,
    Probe,
    Question,
    Sample,
    Task,
)
from paceline.families.reasoning.core.answers.text import extract_number
from paceline.families.reasoning.core.backends.openai_model import OpenAIModel
from paceline.families.reasoning.core.backends.pretrained import load
from paceline.families.reasoning.core.language import LanguageModel
from paceline.families.reasoning.core.questions.executor import Executor
from paceline.families.reasoning.core.questions.models import Models
from paceline.families.reasoning.core.questions.state import Script
from paceline.families.reasoning.core.recordings.archive import Archive, Recording
from paceline.families.reasoning.core.recordings.replay import Replay

NUM_QUESTIONS, SAMPLES = 3, 4


class TextModel(LanguageModel, Protocol):
    """A model that has words for its tokens."""

    def encode(self, text: str) -> tuple[int, ...]: ...

    def decode(self, tokens: list[int]) -> str: ...


@pytest.fixture(params=["network", "endpoint"])
def model(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[TextModel]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    if request.param == "network":
        yield load(str(tiny_networks.make(tmp_path, "llama")), dtype=torch.float64)
        return
    with running() as server, OpenAIModel("tiny", server.url, context=60, limit=8) as endpoint:
        server.words = lambda body: [" 7", *(" w" for _ in range(int(body["seed"]) % 30))]
        yield endpoint


def plan(question: Question) -> Plan:
    """Use every kind of request but a join."""
    opened = yield [Sample(index=i, tokens=3) for i in range(question.samples)]
    live = [reply.trace for reply in opened if not reply.ended]
    if len(live) > 2:
        yield [Drop(trace=live.pop())]
    yield [Probe(trace=trace) for trace in live]
    yield [Fork(trace=trace, part=0) for trace in live[:1]]
    ended = yield [Extend(trace=trace) for trace in live]
    return next((reply.answer for reply in (*ended, *opened) if reply.answer), None)


def answer(model: TextModel, through: LanguageModel) -> list[Finished]:
    script = Script(
        prompt=model.encode("what is two plus"),
        openings=(model.encode("so"),),
        part_end=model.encode("then"),
        step_end=(),
        conclusion=(),
        probe=model.encode("answer"),
        probe_tokens=2,
    )
    task = Task(samples=SAMPLES, temperature=1.0, context=model.context)
    executor = Executor(
        Models(model=through),
        task,
        [script] * NUM_QUESTIONS,
        reader=lambda _, tokens: extract_number(model.decode(list(tokens))),
        draws=lambda number, index: (1, number, index),
        width=6,
    )
    questions = [Question(number=n, samples=SAMPLES, num_parts=1) for n in range(NUM_QUESTIONS)]
    return executor.run(questions, plan)


def test_the_executor_answers_and_counts_on_foreign_models(model: TextModel) -> None:
    archive = Archive(model.identity)
    found = answer(model, Recording(model, archive))
    for one in found:
        assert one.ledger.traces == SAMPLES
        assert one.ledger.decoded == sum(len(story.tokens) - story.num_forced for story in one.stories)
    assert sum(one.ledger.forks for one in found) > 0
    assert sum(one.ledger.probed for one in found) > 0
    assert model.poll() == []
    assert answer(model, Replay(archive, context=model.context)) == found  # without the model
