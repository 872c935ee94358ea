"""A model behind an endpoint, against a real server on this machine: streams, retries, broken answers, cancellation."""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from openai_server import PATIENCE_S, Server, running, words_of

from paceline.base.errors import PrerequisiteError, UserError
from paceline.families.reasoning.core.backends import endpoint
from paceline.families.reasoning.core.backends.endpoint_errors import (
    EndpointError,
    MalformedAnswerError,
    OverloadedError,
    RefusedError,
    UnreachableError,
)
from paceline.families.reasoning.core.backends.openai_model import OpenAIModel
from paceline.families.reasoning.core.backends.token_texts import END, Texts, entropy, part_of, scores
from paceline.families.reasoning.core.language import Draw, LanguageModel, Piece

pytestmark = pytest.mark.usefixtures("no_authorities")
SECRET = "sk-very-secret-key"


@pytest.fixture
def server() -> Iterator[Server]:
    with running() as one:
        yield one


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def model(server: Server) -> Iterator[OpenAIModel]:
    with made(server) as one:
        yield one


def made(server: Server, **options: Any) -> OpenAIModel:
    return OpenAIModel(
        "tiny", server.url, **{"context": 500, "retries": 2, "timeout_s": PATIENCE_S, **options}
    )


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def draw(key: int, temperature: float = 0.8) -> Draw:
    return Draw(key=(3, key), temperature=temperature)


def finish(model: LanguageModel, handles: Sequence[int]) -> dict[int, Piece]:
    found: dict[int, Piece] = {}
    while len(found) < len(handles):
        pieces = model.poll()
        assert pieces
        found.update({piece.trace: piece for piece in pieces})
    return found


def one(
    model: OpenAIModel, text: str = "What?", key: int = 0, tokens: int = 400, stop: Sequence[int] = ()
) -> Piece:
    handle = model.begin(model.encode(text), draw(key))
    model.advance(handle, tokens, stop)
    return finish(model, [handle])[handle]


def failing(model: OpenAIModel) -> EndpointError:
    with pytest.raises(EndpointError) as caught:
        one(model)
    said = str(caught.value)
    assert model.identity.partition("@")[2] in said
    assert "expected: " in said
    assert "fix: " in said
    assert SECRET not in said
    assert SECRET not in repr(caught.value.__context__) + repr(caught.value.__cause__)
    assert model.poll() == []  # nothing is under way any more
    return caught.value


def test_a_stream_becomes_tokens_with_what_the_server_measured(server: Server, model: OpenAIModel) -> None:
    piece = one(model)
    (request,) = server.requests
    assert model.decode(piece.tokens) == "".join(words_of(request.body))
    assert piece.tokens[-1] == END
    assert piece.ended
    assert len(piece.tokens) == request.generated
    assert set(piece.logprobs) == {math.log(0.5)}
    lower = -(0.5 * math.log(0.5) + 0.25 * math.log(0.25) * 2)
    assert piece.entropies == pytest.approx([lower] * len(piece.tokens))
    assert request.key == SECRET
    assert request.body["temperature"] == 0.8
    assert request.body["model"] == "tiny"
    assert not model.repeatable
    assert model.identity == f"tiny@{server.url}"


def test_many_streams_run_at_once_up_to_the_limit(server: Server) -> None:
    server.gather(4)
    with made(server, limit=4) as model:
        handles = [model.begin(model.encode(f"question {key}"), draw(key)) for key in range(12)]
        for handle in handles:
            model.advance(handle, 400)
        found = finish(model, handles)
    assert server.most_at_once == 4
    by_prompt = {request.body["prompt"]: request.body for request in server.requests}
    for key, handle in enumerate(handles):
        assert model.decode(found[handle].tokens) == "".join(words_of(by_prompt[f"question {key}"]))
    assert len({request.body["seed"] for request in server.requests}) == 12


def test_a_trace_goes_on_behind_its_own_text_with_another_seed(server: Server, model: OpenAIModel) -> None:
    server.words = lambda body: [" a", " b", " c", " d", " e"]
    handle = model.begin(model.encode("Q"), draw(1))
    model.advance(handle, 2)
    first = finish(model, [handle])[handle]
    assert (model.decode(first.tokens), first.ended) == (" a b", False)
    model.advance(handle, 3)
    second = finish(model, [handle])[handle]
    assert second.ended is False
    assert [r.body["prompt"] for r in server.requests] == ["Q", "Q a b"]
    assert [r.body["max_tokens"] for r in server.requests] == [2, 3]
    assert len({r.body["seed"] for r in server.requests}) == 2


def test_a_fork_continues_text_and_forced_text_and_leaves_its_parent(
    server: Server, model: OpenAIModel
) -> None:
    server.words = lambda body: [" a", " b"]
    parent = model.begin(model.encode("Q"), draw(1))
    model.advance(parent, 2)
    finish(model, [parent])
    child = model.fork(parent, model.encode(" So the answer is"), draw(2))
    model.advance(child, 1)
    model.advance(parent, 1)
    finish(model, [child, parent])
    assert sorted(r.body["prompt"] for r in server.requests[1:]) == ["Q a b", "Q a b So the answer is"]
    again = model.fork(parent, model.encode("!"), draw(3))
    model.advance(again, 1)
    with pytest.raises(ValueError, match="cannot be forked"):
        model.fork(again, (), draw(4))
    finish(model, [again])


def test_a_stop_text_ends_a_piece_and_the_server_stops_generating(server: Server, model: OpenAIModel) -> None:
    server.rests_at = 10
    server.words = lambda body: [*(f" {i}" for i in range(5)), " <en", "d> more", *[" w"] * 400]
    piece = one(model, "Q", tokens=400, stop=model.encode("<end>"))
    assert model.decode(piece.tokens) == " 0 1 2 3 4 <end> more"
    assert not piece.ended
    (request,) = server.requests
    assert request.ended.wait(PATIENCE_S)
    assert request.left
    assert request.generated <= 10  # it may see that the client has left before it rests


def test_a_dropped_trace_closes_its_connection_so_that_the_server_stops(
    server: Server, model: OpenAIModel
) -> None:
    server.rests_at = 6
    server.words = lambda body: [f" w{i}" for i in range(400 if body["prompt"] == "long" else 5)]
    dropped, kept = (model.begin(model.encode(text), draw(0)) for text in ("long", "short"))
    model.advance(dropped, 400)
    model.advance(kept, 400)
    found = finish(model, [kept])
    assert set(found) == {kept}
    assert server.resting.wait(PATIENCE_S)
    model.drop(dropped)
    (request,) = (r for r in server.requests if r.body["prompt"] == "long")
    assert request.ended.wait(PATIENCE_S)
    assert request.left
    assert request.generated <= 6
    assert model.poll() == []
    with pytest.raises(ValueError, match="no trace"):
        model.drop(dropped)


def test_closing_a_model_ends_its_streams_and_its_thread(server: Server) -> None:
    server.rests_at = 1
    server.words = lambda body: [" w"] * 400
    before = threading.active_count()
    with made(server) as model:
        model.advance(model.begin(model.encode("Q"), draw(0)), 400)
        assert server.resting.wait(PATIENCE_S)
    assert server.requests[0].ended.wait(PATIENCE_S)
    assert server.requests[0].left
    assert not model._endpoint.thread.is_alive()
    until(lambda: threading.active_count() <= before + 1)  # the server's may still be ending
    model.close()


def test_a_refusal_for_capacity_is_tried_again_after_the_time_that_the_server_names(server: Server) -> None:
    server.behaviours.extend(["status:429,1", "status:500"])
    with made(server) as model:
        began = time.monotonic()
        piece = one(model)
    assert time.monotonic() - began >= 1.0
    assert piece.ended
    assert len(server.requests) == 3


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_server_that_never_has_capacity_is_an_error(server: Server, status: int) -> None:
    server.behaviours.extend([f"status:{status},0.01"] * 2)
    with made(server, retries=1) as model:
        error = failing(model)
    assert isinstance(error, OverloadedError)
    assert f"status {status} again and again: " in str(error)
    assert "not with [key]" in str(error)
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("status", "fix"), [(401, "set OPENAI_API_KEY"), (404, "check the address"), (400, "see what")]
)
def test_a_refusal_is_not_tried_again(server: Server, status: int, fix: str) -> None:
    server.behaviours.append(f"status:{status}")
    with made(server) as model:
        error = failing(model)
    assert isinstance(error, RefusedError)
    assert fix in str(error)
    assert len(server.requests) == 1


def test_a_stream_that_breaks_goes_on_behind_what_had_come(server: Server, model: OpenAIModel) -> None:
    server.words = lambda body: [" a", " b", " c", " d", " e", " f"][: 6 - body["prompt"].count(" ")]
    server.behaviours.extend(["cut:2", "cut:1"])
    piece = one(model, "Q", tokens=400)
    assert [r.body["prompt"] for r in server.requests] == ["Q", "Q a b", "Q a b a"]
    assert model.decode(piece.tokens) == " a b a a b c"
    assert [r.body["max_tokens"] for r in server.requests] == [400, 398, 397]
    assert model.num_interrupted == 2
    server.behaviours.extend(["cut:0"] * 3)
    error = failing(model)
    assert isinstance(error, UnreachableError)
    assert "the stream broke 3 times: it ended without a finish_reason" in str(error)


def good(**changes: Any) -> str:
    choice = {"index": 0, "text": " a", "finish_reason": None, "logprobs": None, **changes}
    return json.dumps(
        {"id": "c", "object": "text_completion", "created": 0, "model": "tiny", "choices": [choice]}
    )


def logprobs(**changes: Any) -> dict[str, Any]:
    return {"tokens": [" a"], "token_logprobs": [-1.0], "top_logprobs": [{" a": -1.0}], **changes}


@pytest.mark.parametrize(
    ("behaviour", "told"),
    [
        ("html", "content of type text/html"),
        ("raw:{no json", "the server answers otherwise: "),
        ("raw:[1, 2]", "the server answers otherwise: "),
        ('raw:{"answer": 42}', "a message without a list 'choices'"),
        ('raw:{"choices": 42}', "a message without a list 'choices'"),
        (f"raw:{good(text=None)}", "choices[0].text is NoneType"),
        (f"raw:{good(text=5)}", "choices[0].text is int"),
        (f"raw:{good()}", "text without logprobs"),
        (
            f"raw:{good(logprobs=logprobs(tokens=[' a', ' b']))}",
            "not one of token_logprobs for each of tokens",
        ),
        (f"raw:{good(logprobs=logprobs(token_logprobs=[None]))}", "no logarithm of a probability"),
        (f"raw:{good(logprobs=logprobs(token_logprobs=[3.0]))}", "no logarithm of a probability"),
        (f"raw:{good(logprobs=logprobs(top_logprobs=[]))}", "the stream broke"),
        (f"raw:{good(logprobs=logprobs(top_logprobs=[{' a': 2.0}]))}", "no logarithm of a probability"),
        ("miscount:7", "the server counts "),
    ],
)
def test_an_answer_that_is_not_of_the_interface_is_told(server: Server, behaviour: str, told: str) -> None:
    server.behaviours.append(behaviour)
    if told == "the stream broke":  # no tops are allowed; what is wrong with this stream is that it ends
        server.behaviours.extend([behaviour, behaviour])
    with made(server) as model:
        error = failing(model)
    assert told in str(error)
    assert isinstance(error, UnreachableError if told == "the stream broke" else MalformedAnswerError)


def test_a_server_that_is_silent_for_too_long_is_an_error(server: Server) -> None:
    server.behaviours.append("silent")
    with made(server, timeout_s=1.0, retries=0) as model:
        error = failing(model)
    assert isinstance(error, UnreachableError)
    assert "no answer" in str(error)


def test_a_stream_that_falls_silent_goes_on(server: Server) -> None:
    server.words = lambda body: [" a", " b"]
    server.behaviours.append("rests")
    with made(server, timeout_s=3) as model:
        handle = model.begin(model.encode("Q"), draw(0))
        model.advance(handle, 2)
        assert model.decode(finish(model, [handle])[handle].tokens) == " a b"
        assert model.num_interrupted == 1


def test_no_server_is_an_error() -> None:
    with running() as server:
        pass
    with made(server, retries=0) as model:
        assert isinstance(failing(model), UnreachableError)


def test_one_failure_leaves_the_others_as_they_are(server: Server, model: OpenAIModel) -> None:
    bad = model.begin(model.encode("bad"), draw(0))
    server.behaviours.append("status:400")
    model.advance(bad, 10)
    until(lambda: bool(server.requests))
    fine = model.begin(model.encode("fine"), draw(0))
    model.advance(fine, 400)
    with pytest.raises(RefusedError):
        finish(model, [bad, fine])
    assert finish(model, [fine])[fine].ended
    model.advance(bad, 400)  # it is under way no more
    assert finish(model, [bad])[bad].ended


def test_without_logprobs_messages_are_tokens_and_nothing_is_measured(server: Server) -> None:
    with made(server, top_logprobs=0) as model:
        piece = one(model)
        assert model.decode(piece.tokens) == "".join(words_of(server.requests[0].body))
        assert set(piece.logprobs) == set(piece.entropies) == {0.0}
        assert "logprobs" not in server.requests[0].body
        server.behaviours.append("miscount:9")
        assert isinstance(failing(model), MalformedAnswerError)


def test_the_next_question_is_a_stop_of_every_request_that_has_logprobs(
    server: Server, model: OpenAIModel
) -> None:
    one(model)
    assert server.requests[0].body["stop"] == ["\nQuestion:"]
    with made(server, top_logprobs=0) as silent:
        one(silent)
    assert "stop" not in server.requests[1].body


def test_tokens_of_a_stop_whose_text_the_server_keeps_are_no_miscount(
    server: Server, model: OpenAIModel
) -> None:
    server.names_end = False
    server.behaviours.extend(["miscount:3", "miscount:60"])
    piece = one(model)
    assert piece.ended
    assert piece.tokens[-1] == END
    assert isinstance(failing(model), MalformedAnswerError)


@pytest.mark.parametrize("top_logprobs", [0, 5])
def test_a_server_that_takes_no_notice_of_stops_is_left_at_the_next_question(
    server: Server, top_logprobs: int
) -> None:
    server.words = lambda body: [" 12", "\n", "\n", "Question", ":", " And", " 6?", *[" more"] * 300]
    server.rests_at = 12
    with made(server, top_logprobs=top_logprobs) as model:
        piece = one(model)
        assert model.decode(piece.tokens) == " 12\n\nQuestion:"
        assert piece.ended
    assert server.requests[0].ended.wait(PATIENCE_S)
    assert server.requests[0].left


def test_an_end_that_the_server_does_not_name_is_one_token(server: Server, model: OpenAIModel) -> None:
    server.names_end = False
    piece = one(model)
    assert piece.tokens[-1] == END
    assert END not in piece.tokens[:-1]
    assert (piece.logprobs[-1], piece.entropies[-1]) == (0.0, 0.0)


def test_the_context_ends_a_trace(server: Server) -> None:
    server.words = lambda body: [" a"] * 400
    with made(server, context=6) as model:
        piece = one(model, tokens=100)
        assert len(piece.tokens) == 5
        assert piece.ended
        assert server.requests[0].body["max_tokens"] == 5


def test_scores_are_those_of_the_echoed_prompt(server: Server, model: OpenAIModel) -> None:
    (found,) = model.score([(model.encode("Q: "), (*model.encode("aab"), *model.encode("ba")))])
    assert found == [-2.0, -1.5]
    assert server.requests[0].body["echo"] is True
    server.behaviours.append(f"raw:{good()}")
    with pytest.raises(MalformedAnswerError, match="the prompt's own logprobs"):
        model.score([(model.encode("Q"), model.encode("a"))])
    assert model.score([(model.encode("Q"), ())]) == [[]]


def test_scores_of_tokens_across_two_texts_are_refused() -> None:
    assert scores(["Q", "ab", "c", "?"], [None, -1.0, -2.0, -9.0], ["ab", "c"], 1) == [-1.0, -2.0]
    with pytest.raises(ValueError, match="lies across two texts"):
        scores(["Q", "ab", "c"], [None, -1.0, -2.0], ["a", "bc"], 1)
    with pytest.raises(ValueError, match="lies across two texts"):
        scores(["Qa", "b"], [None, -1.0], ["ab"], 1)
    with pytest.raises(ValueError, match="echoed less"):
        scores(["Q", "a"], [None, -1.0], ["ab"], 1)


def test_what_makes_no_sense_is_refused(model: OpenAIModel) -> None:
    handle = model.begin(model.encode("Q"), draw(0))
    with pytest.raises(ValueError, match="0 tokens asked"):
        model.advance(handle, 0)
    with pytest.raises(ValueError, match="0 tokens; 1 to 500"):
        model.begin((), draw(0))
    with pytest.raises(ValueError, match="no token 999"):
        model.begin((999,), draw(0))
    with pytest.raises(ValueError, match="a temperature of -1"):
        model.begin(model.encode("Q"), draw(0, -1.0))
    model.advance(handle, 400)
    with pytest.raises(ValueError, match="under way already"):
        model.advance(handle, 1)
    finish(model, [handle])
    with pytest.raises(ValueError, match="has ended"):
        model.advance(handle, 1)


def test_passwords_of_an_address_are_in_no_name() -> None:
    with OpenAIModel("m", "http://user:hidden@localhost:1/v1?token=x", context=10, retries=0) as model:
        assert model.identity == "m@http://localhost:1/v1"
    with pytest.raises(UserError, match="it is no address of a server"):
        OpenAIModel("m", "localhost:8000", context=10)
    with pytest.raises(ValueError, match="context 1"):
        OpenAIModel("m", "http://localhost:1/v1", context=1)


def test_a_missing_library_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> object:
        raise ImportError(name)

    monkeypatch.setattr(endpoint.importlib, "import_module", missing)
    with pytest.raises(PrerequisiteError, match=r"pip install 'paceline\[openai\]'"):
        OpenAIModel("m", "http://localhost:1/v1", context=10)


def test_texts_have_numbers_and_the_end_has_no_letters() -> None:
    texts = Texts()
    assert texts.number("a") == texts.number("a") != texts.number("b")
    assert texts.text([texts.number("a"), END, texts.number(""), texts.number("b")]) == "ab"
    assert texts.number("") != END


def test_letters_of_several_tokens_are_the_messages_text() -> None:
    tokens = ["bytes:\\xf0\\x9f", "bytes:\\x98\\x80"]
    measured = SimpleNamespace(tokens=tokens, token_logprobs=[-1.0, -0.5], top_logprobs=None)
    choice = SimpleNamespace(text="\U0001f600", finish_reason=None, logprobs=measured)
    part = part_of(SimpleNamespace(choices=[choice]), True)
    assert part is not None
    assert part.texts == ("\U0001f600", "")
    assert part.logprobs == (-1.0, -0.5)


def test_an_end_may_be_named_beside_the_last_text() -> None:
    measured = SimpleNamespace(tokens=[" so", "</s>"], token_logprobs=[-1.0, -0.5], top_logprobs=None)
    choice = SimpleNamespace(text=" so", finish_reason="stop", logprobs=measured)
    part = part_of(SimpleNamespace(choices=[choice]), True)
    assert part is not None
    assert (part.texts, part.has_end) == ((" so", ""), True)


def test_an_entropy_of_the_likeliest_tokens_is_a_lower_bound() -> None:
    logs = [math.log(p) for p in (0.5, 0.3, 0.1, 0.1)]
    whole = -sum(math.exp(x) * x for x in logs)
    assert entropy(dict(zip("abcd", logs, strict=True)), logs[0]) == pytest.approx(whole)
    assert entropy(dict(zip("ab", logs, strict=False)), logs[0]) < whole
    assert entropy(None, logs[0]) == pytest.approx(math.log(2))
    assert entropy({"a": 0.0}, 0.0) == 0.0
