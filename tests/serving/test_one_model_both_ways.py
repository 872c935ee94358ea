"""One trained chat model asked in this process and behind a server: the same prompts, and accuracies that agree.

The server is plain ``transformers`` and takes nothing of the product: it applies the tokenizer's template by itself,
draws by ``generate``, and cuts the tail of the distribution unless a request says otherwise, as llama.cpp does. It can
also be wrong on purpose, which the comparison must notice.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from paceline.cli.measuring.evaluate import evaluate
from paceline.cli.results.samples import samples
from paceline.families.reasoning.core.backends.transformers_model import TransformersModel

for package in ("tokenizers", "openai"):
    pytest.importorskip(package, reason=f"a model of transformers needs {package}: make dev")

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
trained_networks = pytest.importorskip("trained_networks")

RIGHT = 0.5
CUTS = {"top_k": 40, "top_p": 0.95, "min_p": 0.1}
"""What it draws from where a request does not say, in llama.cpp's way."""
TAKEN = (
    "model",
    "messages",
    "prompt",
    "max_tokens",
    "temperature",
    "stop",
    "seed",
    "n",
    "top_p",
    "top_k",
    "min_p",
)


class Server(ThreadingHTTPServer):
    """Serves a folder's model; ``always_cuts`` takes no notice of what a request says of the distribution."""

    daemon_threads = True

    def __init__(self, folder: Path, *, always_cuts: bool = False, template: bool = True) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.network = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        self.always_cuts, self.template = always_cuts, template
        self.prompts: list[tuple[int, ...]] = []
        self.lock = threading.Lock()

    def prompt(self, body: dict[str, Any]) -> list[int]:
        if self.template:
            tokens: list[int] = self.tokenizer.apply_chat_template(
                body["messages"], add_generation_prompt=True, tokenize=True, return_dict=False
            )
            return tokens
        text = f"Question: {body['messages'][-1]['content']}\n\nAnswer:"
        return list(self.tokenizer.encode(text))

    def answer(self, body: dict[str, Any]) -> dict[str, Any]:
        prompt = self.prompt(body)
        told = {name: value for name, value in CUTS.items() if self.always_cuts or name not in body}
        told |= {} if self.always_cuts else {name: body[name] for name in CUTS if name in body}
        told["top_k"] = max(told["top_k"], 0)
        drawing: dict[str, Any] = {"do_sample": False}
        if body["temperature"] > 0:
            drawing = {"do_sample": True, "temperature": body["temperature"], **told}
        with self.lock:
            self.prompts.append(tuple(prompt))
            torch.manual_seed(body.get("seed", 0))
            written = self.network.generate(
                torch.tensor([prompt]),
                max_new_tokens=body["max_tokens"],
                num_return_sequences=body.get("n", 1),
                **drawing,
            )
        choices, count = [], 0
        for place, row in enumerate(written[:, len(prompt) :].tolist()):
            end = row.index(self.network.generation_config.eos_token_id) + 1 if 1 in row else len(row)
            count += end
            text = self.tokenizer.decode(row[:end], skip_special_tokens=True)
            finish = "stop" if 1 in row else "length"
            message = {"role": "assistant", "content": text}
            choices.append({"index": place, "finish_reason": finish, "message": message})
        usage = {"prompt_tokens": len(prompt), "completion_tokens": count}
        return {
            "id": "c",
            "object": "chat.completion",
            "created": 0,
            "model": "m",
            "choices": choices,
            "usage": usage,
        }


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        unknown = sorted(set(body) - set(TAKEN))
        answer = {"error": {"message": f"no field {unknown}"}} if unknown else self.server.answer(body)
        data = json.dumps(answer).encode()
        self.send_response(400 if unknown else 200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serving(folder: Path, **how: bool) -> Iterator[Server]:
    with Server(folder, **how) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained_networks.train(tmp_path_factory.mktemp("trained"), right=RIGHT)


@pytest.fixture(scope="module")
def questions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("questions") / "sums.csv"
    pairs = [(a, b) for a in trained_networks.DIGITS for b in trained_networks.DIGITS]
    rows = [f"{trained_networks.question(a, b)},{a + b}" for a, b in pairs]
    path.write_text("\n".join(["question,answer", *rows]) + "\n")
    return path


def evaluated(model: str, questions: Path, output: Path) -> dict[str, Any]:
    """Return what ``paceline evaluate`` says of each method; one trace a question is drawn, beside the likeliest."""
    arguments = [
        f"--model={model}",
        f"--problems={questions}",
        "--methods=greedy,self-consistency",
        "--samples=1",
    ]
    arguments += ["--temperature=1", "--max-tokens=8", f"--instruction={trained_networks.INSTRUCTION}"]
    done = CliRunner().invoke(evaluate, [*arguments, f"--output={output}", "--json"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    told = json.loads((output / "results.json").read_text())
    return {one["method"]: one for one in told["methods"]}


def compared(one: Path, other: Path) -> dict[str, Any]:
    """Return ``paceline samples``' difference of what was drawn, the other less the one."""
    logs = [f"{folder / 'samples.jsonl'}#self-consistency" for folder in (one, other)]
    done = CliRunner().invoke(samples, [*logs, "--json"], catch_exceptions=False)
    found: dict[str, Any] = json.loads(done.output)[1]
    return found


@pytest.fixture(scope="module")
def here(
    folder: Path, questions: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, Any], set[tuple[int, ...]]]:
    """Return the evaluation in this process: its folder, its figures, and the prompts that the network read."""
    output, prompts = tmp_path_factory.mktemp("here") / "out", set()
    begin = TransformersModel.begin

    def spied(self: TransformersModel, prompt: Any, draw: Any) -> Any:
        prompts.add(tuple(prompt))
        return begin(self, prompt, draw)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TransformersModel, "begin", spied)
        found = evaluated(f"transformers:{folder}", questions, output)
    return output, found, prompts


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")


def test_the_model_is_right_in_a_middling_share(here: tuple[Path, dict[str, Any], Any]) -> None:
    _, found, _ = here
    assert found["greedy"]["accuracy"] > 0.85  # of most sums the right result is the likeliest
    assert 0.3 < found["self-consistency"]["accuracy"] < 0.75
    assert found["self-consistency"]["unread"] == 0


def test_prompts_are_the_same_and_accuracies_agree(
    here: tuple[Path, dict[str, Any], set[tuple[int, ...]]], folder: Path, questions: Path, tmp_path: Path
) -> None:
    output, mine, prompts = here
    with serving(folder) as server:
        found = evaluated(
            f"openai:http://127.0.0.1:{server.server_address[1]}/v1#m", questions, tmp_path / "out"
        )
        hello = tuple(server.prompt({"messages": [{"role": "user", "content": "Hello."}]}))
    # Token for token, of every question: each is asked by the chat template in both.
    assert set(server.prompts) - {hello} == prompts
    assert len(prompts) == 81
    begin = server.tokenizer.convert_tokens_to_ids("<user>")
    assert all(prompt[0] == begin for prompt in prompts)
    assert found["greedy"]["right"] == mine["greedy"]["right"]
    pair = compared(output, tmp_path / "out")
    assert pair["num_items"] == 81
    assert pair["low"] < 0 < pair["high"], pair
    # Different draws of one distribution, and no copy of each other.
    assert pair["won"] > 0 and pair["lost"] > 0


@pytest.mark.parametrize(
    "wrong", [{"always_cuts": True}, {"template": False}], ids=["tail cut", "no template"]
)
def test_a_server_of_another_distribution_or_prompt_is_noticed(
    here: tuple[Path, dict[str, Any], set[tuple[int, ...]]],
    folder: Path,
    questions: Path,
    tmp_path: Path,
    wrong: dict[str, bool],
) -> None:
    output, _, prompts = here
    with serving(folder, **wrong) as server:
        evaluated(f"openai:http://127.0.0.1:{server.server_address[1]}/v1#m", questions, tmp_path / "out")
    pair = compared(output, tmp_path / "out")
    better = "always_cuts" in wrong
    assert pair["low"] > 0.1 if better else pair["high"] < -0.1, pair
    assert bool(prompts & set(server.prompts)) is better
