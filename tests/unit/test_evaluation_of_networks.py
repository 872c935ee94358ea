"""One network asked in this process and behind an endpoint: the same prompts, token for token, and the same answers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import tiny_networks
import torch
from evaluation_runs import lines, problems, run, sums

from paceline.base.errors import UserError
from paceline.families.reasoning.core.backends.pretrained import load
from paceline.families.reasoning.core.language import Draw
from paceline.workflows.evaluation.known_truth import KnownTruth
from paceline.workflows.evaluation.sources import Asking, LocalSource, plain_prompt

TEMPLATE = (
    "{% for m in messages %}<user> {{ m['role'] }} {{ m['content'] }} <end> {% endfor %}"
    "{% if add_generation_prompt %}<model> {% if short is defined and short %}a{% endif %}{% endif %}"
)
TOKENS = 12


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_networks.make(tmp_path_factory.mktemp("network"), "llama", template=TEMPLATE, context=96)


class Served(KnownTruth):
    """A server of a network that makes its prompts by itself, as servers do: by the tokenizer's own template."""

    def __init__(self, folder: Path, file: Path) -> None:
        super().__init__("", problems(file))
        self.network = load(str(folder), dtype=torch.float64)
        self.prompts: list[list[int]] = []

    def _answered(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        assert path.endswith("/chat/completions")
        prompt = self.network._tokenizer.apply_chat_template(
            body["messages"],
            add_generation_prompt=True,
            tokenize=True,
            return_dict=False,
            **body.get("chat_template_kwargs", {}),
        )
        self.prompts.append(list(prompt))
        handle = self.network.begin(prompt, Draw(key=(body.get("seed", 0),), temperature=body["temperature"]))
        self.network.advance(handle, body["max_tokens"])
        pieces = self.network.poll()
        while not pieces:
            pieces = self.network.poll()
        self.network.drop(handle)
        ended = pieces[0].tokens[-1] in self.network.end
        choice = {
            "index": 0,
            "finish_reason": "stop" if ended else "length",
            "message": {"role": "assistant", "content": self.network.decode(pieces[0].tokens)},
        }
        usage = {"prompt_tokens": len(prompt), "completion_tokens": len(pieces[0].tokens)}
        return {
            "id": "c",
            "object": "chat.completion",
            "created": 0,
            "model": "m",
            "choices": [choice],
            "usage": usage,
        }


@pytest.mark.parametrize("options", [(), ("--system=the answer is", "--template-option=short=true")])
def test_prompts_and_greedy_answers_are_the_same_in_both(
    folder: Path, tmp_path: Path, options: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    file = sums(tmp_path, 4)
    common = [
        f"--problems=gsm8k:{file}",
        "--methods=greedy",
        f"--max-tokens={TOKENS}",
        "--concurrency=1",
        *options,
    ]
    here = run(f"--model=transformers:{folder}", "--dtype=float64", f"--output={tmp_path / 'here'}", *common)
    with Served(folder, file) as server:
        there = run(f"--model=openai:{server.url}#m", f"--output={tmp_path / 'there'}", *common)
    questions = {
        one.body["messages"][-1]["content"]: p for one, p in zip(server.served, server.prompts, strict=True)
    }
    told = {one.body["messages"][-1]["content"]: one for one in server.served}
    for text, prompt in questions.items():
        if text != "Hello.":
            variables = json.loads(json.dumps(told[text].body.get("chat_template_kwargs", {})))
            mine = server.network.chat(text, system="the answer is" if options else "", options=variables)
            assert list(mine) == prompt
    kept = [
        {line["problem"]: line["kept"][0][1] for line in lines(done.folder, "answered") if line["kept"]}
        for done in (here, there)
    ]
    assert set(kept[0]) == set(kept[1]) and len(kept[0]) == 4
    for problem, one in kept[0].items():
        other = kept[1][problem]
        for name in ("text", "finish", "tokens", "prompt_tokens"):
            assert one[name] == other[name], name
    assert [row.answer for row in here.outcome.rows] == [row.answer for row in there.outcome.rows]
    assert here.outcome.totals.completion_tokens == sum(one["tokens"] for one in kept[0].values())


def test_methods_run_on_a_network_here_and_an_overlong_question_fails_alone(
    folder: Path, tmp_path: Path
) -> None:
    file = sums(tmp_path, 3)
    long = {"question": "word " * 100, "answer": "#### 1"}
    file.write_text(file.read_text() + json.dumps(long) + "\n")
    arguments = [
        f"--model=transformers:{folder}",
        f"--problems=gsm8k:{file}",
        "--samples=3",
        f"--max-tokens={TOKENS}",
    ]
    arguments += [
        f"--output={tmp_path / 'out'}",
        "--methods=greedy,self-consistency,deepconf:warmup=1,dynasor",
    ]
    done = run(*arguments)
    status = {(row.place, row.method): row.status for row in done.outcome.rows}
    assert {place for (place, _), one in status.items() if one == "failed"} == {3}
    assert all(one == "answered" for (place, _), one in status.items() if place < 3)
    assert "the model's context 96" in next(row.reason for row in done.outcome.rows if row.place == 3)
    again = run(*arguments, "--resume")
    assert again.outcome.totals.completion_tokens == done.outcome.totals.completion_tokens
    with pytest.raises(UserError, match="is no type of weights"):
        run(*arguments[:3], "--dtype=int8", f"--output={tmp_path / 'typed'}")


def test_a_network_without_a_template_completes_texts_as_behind_an_endpoint(tmp_path: Path) -> None:
    folder = tiny_networks.make(tmp_path / "plain", "llama", template=None, context=96)
    file = sums(tmp_path, 1)
    network = load(str(folder))
    source = LocalSource(network, Asking(system="we have", temperature=0.6, max_tokens=2), None, None)  # type: ignore[arg-type]
    text = plain_prompt("we have", problems(file)[0].question)
    assert source.prompt(problems(file)[0].question) == tuple(network._tokenizer.encode(text))


def test_thinking_that_the_template_opens_is_none_of_the_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiny_networks, "WORDS", (*tiny_networks.WORDS, "<think>"))
    opens = TEMPLATE.replace("<model> {%", "<model> <think> {%")
    folder = tiny_networks.make(tmp_path / "thinks", "llama", template=opens, context=96)
    done = run(
        f"--model=transformers:{folder}",
        f"--problems=gsm8k:{sums(tmp_path, 2)}",
        "--methods=greedy",
        f"--max-tokens={TOKENS}",
        f"--output={tmp_path / 'out'}",
    )
    kept = [one for line in lines(done.folder, "answered") for _, one in line["kept"]]
    assert all(one["thinking"] and not one["text"] for one in kept)
    assert all(row.answer is None for row in done.outcome.rows)


@pytest.mark.parametrize("option", ["--extra=top_p=0.9", "--without=n", "--interface=completions"])
def test_what_says_how_a_server_is_asked_is_refused_for_a_network(
    folder: Path, tmp_path: Path, option: str
) -> None:
    with pytest.raises(UserError, match="says how a server is asked"):
        run(f"--model=transformers:{folder}", f"--problems=gsm8k:{sums(tmp_path, 1)}", option)
