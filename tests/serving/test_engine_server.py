"""The engine's process and a whole measured block: a second client, cancellation, refusals, and the gate."""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import replace

import openai
import pytest

from paceline.families.serving.core.engine.reference import Reference
from paceline.families.serving.core.load.calls import Call, Workload
from paceline.families.serving.core.load.log.outcomes import outcomes_of
from paceline.families.serving.core.load.processes import run_load
from paceline.families.serving.core.load.sending.client import Limits
from paceline.families.serving.ops.serve.gate import check_answers
from paceline.families.serving.ops.serve.served import EngineProcess
from paceline.worker.ranks.session import CaseError

MODEL = {"layers": 1, "hidden": 32, "heads": 2, "kv_heads": 1, "vocab": 128, "max_context": 512, "seed": 1}
ENGINE = {"block_size": 8, "num_blocks": 80, "max_batch": 8, "token_budget": 64}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineProcess]:
    folder = tmp_path_factory.mktemp("engine")
    module = ("paceline.baselines.serving.lru_prefix_cache", "lru-prefix-cache", {})
    with EngineProcess(
        module, model=MODEL, engine=ENGINE, device="cpu", log=folder / "engine.log"
    ) as process:
        yield process


def test_the_openai_package_talks_to_the_engine(served: EngineProcess) -> None:
    client = openai.OpenAI(base_url=served.url, api_key="none", max_retries=0)
    prompt = [5, 9, 77, 12]
    whole = client.completions.create(model="m", prompt=prompt, max_tokens=6, temperature=0)
    expected = Reference(MODEL).greedy(prompt, 6)
    assert whole.choices[0].text == "".join(f" t{i}" for i in expected)
    assert whole.usage is not None
    assert (whole.usage.prompt_tokens, whole.usage.completion_tokens) == (4, 6)
    text = ""
    for event in client.chat.completions.create(
        model="m", messages=[{"role": "user", "content": "t5 t9 t77 t12"}], max_tokens=6, stream=True
    ):
        text += event.choices[0].delta.content or ""
    assert text == whole.choices[0].text
    assert client.models.list().data[0].id == "paceline"


def test_a_client_that_goes_away_stops_its_request(served: EngineProcess) -> None:
    client = openai.OpenAI(base_url=served.url, api_key="none", max_retries=0)
    before = served.counters()
    stream = client.completions.create(model="m", prompt=[5] * 20, max_tokens=480, stream=True)
    next(iter(stream))
    stream.close()
    deadline = time.monotonic() + 120
    while served.counters()["cancelled"] == before["cancelled"] and time.monotonic() < deadline:
        time.sleep(0.02)
    after = served.counters()
    assert after["cancelled"] == before["cancelled"] + 1
    assert after["output_tokens"] - before["output_tokens"] < 480
    time.sleep(0.1)
    assert served.counters()["output_tokens"] == after["output_tokens"]


@pytest.mark.parametrize(("path", "status"), [("/v1/nothing", 404), ("/health", 200), ("/metrics", 200)])
def test_the_front_has_the_usual_addresses(served: EngineProcess, path: str, status: int) -> None:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{served.port}{path}") as answer:
            found = answer.status
    except urllib.error.HTTPError as error:
        found = error.code
    assert found == status


def test_a_request_that_is_none_gets_400_and_the_engine_goes_on(served: EngineProcess) -> None:
    client = openai.OpenAI(base_url=served.url, api_key="none", max_retries=0)
    with pytest.raises(openai.BadRequestError, match="the model knows 512"):
        client.completions.create(model="m", prompt=[5], max_tokens=600)
    served.check()


def test_an_answer_with_another_token_does_not_pass_the_gate(served: EngineProcess) -> None:
    calls = tuple(Call(number=n, prompt=(5 + n, 9, 14), output_tokens=5, at_s=0.01 * n) for n in range(6))
    workload = Workload(calls=calls)
    log = run_load(served.url, "m", workload, limits=Limits(run_s=30))
    outcomes = outcomes_of(log)
    reference = Reference(MODEL)
    prompts, rounding = check_answers(reference, workload, outcomes)
    assert prompts[3] == (8, 9, 14)
    assert rounding["largest_shortfall"] <= rounding["tolerance"]
    ids = outcomes[4].stream.token_ids
    assert ids is not None
    for place in range(5):
        wrong = tuple((i + 1) % 128 if n == place else i for n, i in enumerate(ids))
        lying = replace(outcomes[4], stream=replace(outcomes[4].stream, token_ids=wrong))
        with pytest.raises(CaseError, match=f"token {place} of the answer to call 4"):
            check_answers(reference, workload, [*outcomes[:4], lying, *outcomes[5:]])
    silent = replace(outcomes[4], stream=replace(outcomes[4].stream, token_ids=None))
    with pytest.raises(CaseError, match="tells no tokens"):
        check_answers(reference, workload, [*outcomes[:4], silent, *outcomes[5:]])
