"""The reasoning family's model behind an endpoint, against the reference engine and the mock server."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from paceline.families.reasoning.core.backends.openai_model import OpenAIModel
from paceline.families.reasoning.core.language import Draw, Piece
from paceline.families.serving.core.engine.reference import Reference
from paceline.families.serving.core.mock import Behaviour, Gaps, MockServer
from paceline.families.serving.ops.serve.served import EngineProcess

MODEL = {"layers": 1, "hidden": 32, "heads": 2, "kv_heads": 1, "vocab": 128, "max_context": 512, "seed": 1}
ENGINE = {"block_size": 8, "num_blocks": 80, "max_batch": 8, "token_budget": 64}
PROMPT = (5, 9, 77, 12)
GREEDY = Draw(key=(1, 0), temperature=0.0)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineProcess]:
    module = ("paceline.baselines.serving.lru_prefix_cache", "lru-prefix-cache", {})
    log = tmp_path_factory.mktemp("engine") / "engine.log"
    with EngineProcess(module, model=MODEL, engine=ENGINE, device="cpu", log=log) as process:
        yield process


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")


def piece_of(model: OpenAIModel, trace: int) -> Piece:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        for piece in model.poll():
            if piece.trace == trace:
                return piece
    raise AssertionError("nothing came within 30 s")


def words(tokens: tuple[int, ...] | list[int]) -> str:
    return "".join(f" t{token}" for token in tokens)


def test_a_trace_of_the_engine_goes_on_behind_its_own_text(served: EngineProcess) -> None:
    expected = Reference(MODEL).greedy(list(PROMPT), 12)
    with OpenAIModel("paceline", served.url, context=400, top_logprobs=0) as model:
        trace = model.begin(model.encode(words(PROMPT).strip()), GREEDY)
        said = ""
        for tokens in (5, 7):
            model.advance(trace, tokens)
            said += model.decode(piece_of(model, trace).tokens)
        assert said == words(expected)
        fork = model.fork(trace, model.encode(" t3"), GREEDY)
        model.advance(fork, 4)
        behind = Reference(MODEL).greedy([*PROMPT, *expected, 3], 4)
        assert model.decode(piece_of(model, fork).tokens) == words(behind)


def test_a_dropped_trace_stops_the_engine(served: EngineProcess) -> None:
    before = served.counters()
    with OpenAIModel("paceline", served.url, context=500, top_logprobs=0) as model:
        trace = model.begin(model.encode(words(PROMPT).strip()), GREEDY)
        model.advance(trace, 480)
        deadline = time.monotonic() + 30
        while served.counters()["output_tokens"] == before["output_tokens"]:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        model.drop(trace)
        while served.counters()["cancelled"] == before["cancelled"]:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    generated = served.counters()["output_tokens"] - before["output_tokens"]
    assert 0 < generated < 480


def test_a_trace_of_the_mock_server_has_as_many_tokens_as_were_asked_for() -> None:
    behaviour = Behaviour(first=Gaps(mean_s=0.01), gap=Gaps(mean_s=0.001))
    with MockServer(behaviour) as mock, OpenAIModel("m", mock.url, context=100, top_logprobs=0) as model:
        trace = model.begin(model.encode("a question"), GREEDY)
        model.advance(trace, 9)
        piece = piece_of(model, trace)
    assert len(piece.tokens) == 9
    assert len(model.decode(piece.tokens).split()) == 9
