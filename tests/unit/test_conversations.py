"""Conversations with words: what is read, what is asked for, what is left out, and how it is sent."""

from __future__ import annotations

import gzip
import json
import random
import sys
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from paceline.base.errors import PrerequisiteError, UserError
from paceline.families.serving.core.load.calls import Messages, carried, prompt_text
from paceline.families.serving.core.load.sending.target import Target
from paceline.families.serving.core.model_sizes import FIRST_TOKEN
from paceline.families.serving.core.planning.points import check_trace
from paceline.families.serving.core.workloads import text_tokens
from paceline.families.serving.core.workloads.conversation_calls import conversation_workload, folded
from paceline.families.serving.core.workloads.conversation_choice import Choice, LengthLimits, choose
from paceline.families.serving.core.workloads.conversations import Conversations, read_conversations
from paceline.families.serving.core.workloads.drawn import draw_workload
from paceline.families.serving.core.workloads.text_tokens import load_tokenizer
from paceline.families.serving.core.workloads.traced_calls import trace_facts
from paceline.families.serving.core.workloads.traces import read_trace
from paceline.families.serving.spec import FAMILY

WIDE = LengthLimits(min_tokens=1, max_prompt_tokens=10**6, max_total_tokens=10**6)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a tokenizer: a token a word, and one before each text."""
    place = tmp_path_factory.mktemp("words")
    vocabulary = {word: n for n, word in enumerate(("<s>", "<unk>", *(f"w{n}" for n in range(3000))))}
    core = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    core.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    core.save(str(place / "tokenizer.json"))
    return place


def words(count: int, first: int = 0) -> str:
    return " ".join(f"w{(first + n) % 3000}" for n in range(count))


def talk(*turns: tuple[str, str], **more: Any) -> dict[str, Any]:
    return {"conversations": [{"from": who, "value": said} for who, said in turns], **more}


def written(path: Path, *entries: Any) -> Path:
    path.write_text(json.dumps(list(entries)), encoding="utf-8")
    return path


def chosen(path: Path, folder: Path, *entries: Any, **options: Any) -> Choice:
    file = read_conversations(written(path / "talks.json", *entries))
    return choose(file, load_tokenizer(folder), **{"requests": 1, "limits": WIDE, **options})


PLAIN = talk(("human", "w1 w2"), ("gpt", "w3 w4 w5"), id="a")


@pytest.mark.parametrize("form", ["list", "lines", "packed", "mark"])
def test_lists_lines_and_packed_files_of_both_forms_are_the_same(tmp_path: Path, form: str) -> None:
    chat = {"messages": [{"role": "user", "content": "w1 w2"}, {"role": "assistant", "content": "w3 w4 w5"}]}
    odd = talk(("human", "a\u2028b"), ("gpt", "c"))
    entries = (PLAIN, chat, odd)
    text = (
        json.dumps(entries)
        if form in ("list", "mark")
        else "".join(json.dumps(e, ensure_ascii=False) + "\r\n\n" for e in entries)
    )
    data = text.encode("utf-8-sig" if form == "mark" else "utf-8")
    path = tmp_path / "talks"
    path.write_bytes(gzip.compress(data) if form == "packed" else data)
    one, other, last = read_conversations(path).entries
    assert one == other
    assert one.turns == (("user", "w1 w2"), ("assistant", "w3 w4 w5"))
    assert last.turns[0] == ("user", "a\u2028b")


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ({"id": "x"}, "no_conversation"),
        ({"conversations": None}, "no_conversation"),
        ({"conversations": "hello"}, "no_conversation"),
        ({"conversations": []}, "one_turn"),
        (talk(("human", "w1")), "one_turn"),
        (talk(("human", "w1"), ("tool", "w2")), "unknown_role"),
        (talk(("human", None), ("gpt", "w2")), "no_text"),  # type: ignore[arg-type]
        ({"conversations": [{"from": ["x"], "value": "w1"}] * 2}, "unknown_role"),
        (talk(("human", "half \ud83d"), ("gpt", "w2")), "no_text"),
        ({"messages": ["w1", "w2"]}, "no_text"),
        (
            {
                "messages": [
                    {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]},
                    {"role": "assistant", "content": "w2"},
                ]
            },
            "no_text",
        ),
    ],
)
def test_an_entry_that_is_none_is_counted_by_its_reason(
    tmp_path: Path, folder: Path, entry: dict[str, Any], reason: str
) -> None:
    choice = chosen(tmp_path, folder, PLAIN, entry, requests=1)
    file = read_conversations(tmp_path / "talks.json")
    assert [e.reason for e in file.entries] == [None, reason]
    assert choice.sessions[0][0].messages == (("user", "w1 w2"),)
    with pytest.raises(UserError, match=f"has 1 exchange that can be asked for; 1 {reason}"):
        chosen(tmp_path, folder, PLAIN, entry, requests=2)


def test_content_in_parts_of_text_is_text(tmp_path: Path) -> None:
    parts = [{"type": "text", "text": "w1 "}, {"type": "text", "text": "w2"}]
    entry = {"messages": [{"role": "user", "content": parts}, {"role": "assistant", "content": "w3"}]}
    (read,) = read_conversations(written(tmp_path / "talks.json", entry)).entries
    assert read.turns[0] == ("user", "w1 w2")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[{"conversations": [}]', "talks:1: not JSON"),
        ('{"messages": []}\n{"messages"\n', "talks:2: not JSON"),
        ("[1]", "entry 0: not a JSON object"),
        ('[{"turns": []}]', "none of 1 entry has 'conversations' or 'messages'"),
        ("", "none of 0 entries"),
    ],
)
def test_a_file_that_is_none_is_told_with_its_place(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "talks").write_text(text)
    with pytest.raises(UserError) as raised:
        read_conversations(tmp_path / "talks")
    assert words in str(raised.value)


@pytest.mark.parametrize(
    ("prompt", "answer", "reason"),
    [  # a special token stands before each text, so that 3 words are 4 tokens
        (3, 3, None),
        (2, 3, "short_prompt"),
        (3, 2, "short_answer"),
        (1023, 1023, None),
        (1024, 3, "long_prompt"),
        (1023, 1024, "long_total"),
        (2, 2, "short_prompt"),
    ],
)
def test_lengths_are_those_of_vllm(
    tmp_path: Path, folder: Path, prompt: int, answer: int, reason: str | None
) -> None:
    entry = talk(("human", words(prompt)), ("gpt", words(answer)), ("human", words(9)), ("gpt", words(9)))
    ask = {"requests": 1, "limits": None}
    if reason is not None:
        with pytest.raises(UserError, match=f"1 {reason}"):
            chosen(tmp_path, folder, entry, **ask)
        return
    choice = chosen(tmp_path, folder, entry, **ask)
    ((exchange,),) = choice.sessions
    assert (len(exchange.tokens), exchange.answer_tokens) == (prompt + 1, answer + 1)
    assert choice.facts["limits"] == {
        "min_tokens": 4,
        "max_prompt_tokens": 1024,
        "max_total_tokens": 2048,
    }


def test_limits_are_options_and_all_drops_are_counted(tmp_path: Path, folder: Path) -> None:
    talks = [talk(("human", words(n)), ("gpt", words(5))) for n in (1, 10, 20, 30)]
    talks += [talk(("human", words(10)), ("gpt", words(50))), talk(("human", "w1")), {"id": 3}]
    limits = LengthLimits(min_tokens=6, max_prompt_tokens=25, max_total_tokens=40)
    with pytest.raises(UserError) as raised:
        chosen(tmp_path, folder, *talks, requests=3, limits=limits)
    assert "1 long_prompt; 1 long_total; 1 no_conversation; 1 one_turn; 1 short_prompt" in str(raised.value)
    choice = chosen(tmp_path, folder, *talks, requests=2, limits=limits)
    facts = choice.facts
    assert sorted(len(s[0].tokens) for s in choice.sessions) == [11, 21]
    assert facts["left_out"] == sum(facts["dropped"].values())
    assert facts["looked_at"] == 2 + facts["left_out"] - 2  # those without turns are not looked at
    assert facts["limits"]["max_prompt_tokens"] == 25


def _as_vllm_chooses(
    file: Conversations, folder: Path, requests: int, seed: int
) -> list[tuple[str, int, int]]:
    """Choose anew from the steps that vLLM's documentation and source tell of."""
    core = Tokenizer.from_file(str(folder / "tokenizer.json"))
    talks = [e.turns for e in file.entries if len(e.turns) >= 2]
    random.seed(seed)
    random.shuffle(talks)
    found: list[tuple[str, int, int]] = []
    for turns in talks:
        if len(found) >= requests:
            break
        asked, answered = (len(core.encode(turns[n][1]).ids) for n in (0, 1))
        if min(asked, answered) >= 4 and asked <= 1024 and asked + answered <= 2048:
            found.append((turns[0][1], asked, answered))
    return found


@pytest.mark.parametrize("seed", [0, 7])
def test_the_same_seed_chooses_what_vllm_chooses(tmp_path: Path, folder: Path, seed: int) -> None:
    rng = random.Random(3)
    talks = []
    for n in range(300):
        turns = [
            (("human", "gpt")[k % 2], words(rng.randrange(1, 1400), n)) for k in range(rng.randrange(1, 5))
        ]
        talks.append(talk(*turns))
    choice = chosen(tmp_path, folder, *talks, requests=60, limits=None, seed=seed)
    file = read_conversations(tmp_path / "talks.json")
    ours = [(e.messages[0][1], len(e.tokens), e.answer_tokens) for (e,) in choice.sessions]
    assert ours == _as_vllm_chooses(file, folder, 60, seed)


def test_the_systems_words_go_with_the_prompt_and_other_speakers_are_counted(
    tmp_path: Path, folder: Path
) -> None:
    told = talk(("system", "w9 w9"), ("human", "w1 w2"), ("gpt", "w3"))
    begun = talk(("gpt", "w5 w6"), ("human", "w7"))
    choice = chosen(tmp_path, folder, told, begun, requests=2)
    assert {s[0].messages: (len(s[0].tokens), s[0].answer_tokens) for s in choice.sessions} == {
        (("system", "w9 w9"), ("user", "w1 w2")): (5, 2),
        (("user", "w5 w6"),): (3, 2),
    }
    assert choice.facts["other_speakers"] == 1


LONG = (
    *(("system", "w0"), ("human", "w1 w2"), ("gpt", "w3 w4 w5")),
    *(("human", "w6"), ("gpt", "w7 w8")),
    *(("human", "w9 w10 w11"), ("gpt", "w12")),
)


def test_whole_conversations_are_sessions_whose_turns_carry_on(tmp_path: Path, folder: Path) -> None:
    choice = chosen(tmp_path, folder, talk(*LONG), requests=3, whole=True)
    (session,) = choice.sessions
    # The special token is before the first text alone: the later ones are no beginnings.
    assert [(len(e.tokens), e.answer_tokens) for e in session] == [(4, 3), (1, 2), (3, 1)]
    assert [e.messages[-1] for e in session] == [("user", "w1 w2"), ("user", "w6"), ("user", "w9 w10 w11")]
    assert choice.facts["ended_early"] == {}


@pytest.mark.parametrize(
    ("turns", "limits", "kept", "why"),
    [
        (LONG, LengthLimits(min_tokens=1, max_prompt_tokens=2048, max_total_tokens=13), 2, "long_total"),
        (LONG, LengthLimits(min_tokens=1, max_prompt_tokens=4, max_total_tokens=9), 1, "long_total"),
        (LONG, LengthLimits(min_tokens=2, max_prompt_tokens=99, max_total_tokens=99), 1, "short_prompt"),
        (LONG[:-1], WIDE, 2, "no_answer"),
        ((*LONG[:3], ("human", "w1"), ("human", "w2")), WIDE, 1, "out_of_turn"),
        ((*LONG[:3], ("system", "w1"), ("gpt", "w2")), WIDE, 1, "out_of_turn"),
    ],
)
def test_a_whole_conversation_ends_before_the_first_turn_that_cannot_be_asked_for(
    tmp_path: Path,
    folder: Path,
    turns: tuple[tuple[str, str], ...],
    limits: LengthLimits,
    kept: int,
    why: str,
) -> None:
    choice = chosen(tmp_path, folder, talk(*turns), requests=kept, whole=True, limits=limits)
    assert len(choice.sessions[0]) == kept
    assert choice.facts["ended_early"] == {why: 1}


def test_a_session_that_begins_with_an_answer_is_left_out_and_the_last_may_be_cut(
    tmp_path: Path, folder: Path
) -> None:
    begun = talk(("gpt", "w1"), ("human", "w2"), ("gpt", "w3"))
    choice = chosen(tmp_path, folder, begun, talk(*LONG), talk(*LONG), requests=5, whole=True)
    assert [len(s) for s in choice.sessions] == [3, 2]
    assert choice.facts["ended_early"] == {"enough": 1}
    with pytest.raises(UserError, match="1 begun_by_answer"):
        chosen(tmp_path, folder, begun, talk(*LONG), requests=4, whole=True)


def test_calls_are_chats_texts_or_tokens(tmp_path: Path, folder: Path) -> None:
    path = written(tmp_path / "talks.json", talk(*LONG))
    target = Target.of("http://127.0.0.1:9/v1", "m")
    bodies = {}
    for form in ("chat", "text", "tokens"):
        workload, facts = conversation_workload(
            path,
            folder,
            requests=2,
            rate_per_s=5.0,
            whole=True,
            form=form,
            limits=WIDE,
            think_s=1.0,  # type: ignore[arg-type]
        )
        first, second = workload.calls
        assert (second.after, second.carries, second.at_s, first.output_tokens) == ((0,), True, None, 3)
        assert second.pause_s > 0
        assert first.at_s is not None
        assert 0 <= first.at_s <= 0.2
        assert facts["conversations"]["form"] == form
        answer = (4, 5) if form == "tokens" else "w3 w4 w5"
        whole = carried(first.prompt, answer, second.prompt)
        request = target.request(second, whole)
        assert request.split(b" ", 2)[1] == (
            b"/v1/chat/completions" if form == "chat" else b"/v1/completions"
        )
        bodies[form] = json.loads(request.partition(b"\r\n\r\n")[2])
    assert bodies["chat"]["messages"] == [
        {"role": "system", "content": "w0"},
        {"role": "user", "content": "w1 w2"},
        {"role": "assistant", "content": "w3 w4 w5"},
        {"role": "user", "content": "w6"},
    ]
    assert bodies["text"]["prompt"] == "w0\n\nw1 w2\n\nw3 w4 w5\n\nw6"
    assert bodies["tokens"]["prompt"] == [0, 2, 3, 4, 4, 5, 8]


def test_messages_are_one_prompt_whatever_carries_on() -> None:
    asked = Messages((("user", "a"),))
    assert prompt_text(carried(asked, "b", "c")) == "a\n\nb\n\nc"
    assert carried(asked, "b", "c") == carried(asked, "b", Messages((("user", "c"),)))


@pytest.mark.parametrize(("rate", "places"), [(None, None), (1.0, 2)])
def test_a_rate_and_places_exclude_each_other(
    tmp_path: Path, folder: Path, rate: float | None, places: int | None
) -> None:
    with pytest.raises(ValueError, match="expected one of both"):
        conversation_workload(tmp_path / "x", folder, requests=1, rate_per_s=rate, concurrency=places)


def test_a_tokenizer_that_cuts_texts_does_not_cut_them_here(tmp_path: Path, folder: Path) -> None:
    core = Tokenizer.from_file(str(folder / "tokenizer.json"))
    core.enable_truncation(max_length=8)
    core.enable_padding(length=16)
    core.save(str(tmp_path / "tokenizer.json"))
    found = load_tokenizer(tmp_path / "tokenizer.json")
    assert [len(found.encode(words(n), True)) for n in (3, 500)] == [4, 501]
    assert found.sha256 != load_tokenizer(folder).sha256
    assert found.vocabulary == 3002


def test_a_tokenizer_that_is_none_is_told(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UserError, match="there is no tokenizer"):
        load_tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(UserError, match="the tokenizer cannot be read"):
        load_tokenizer(tmp_path)
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(PrerequisiteError) as raised:
        load_tokenizer(folder)
    assert "needs the package tokenizers" in str(raised.value)
    assert "pip install 'paceline[hf]'" in str(raised.value)


def test_a_folder_without_the_one_file_is_read_by_transformers(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    vocabulary = ["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]", "hello", "world"]
    (tmp_path / "vocab.txt").write_text("\n".join(vocabulary) + "\n")
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "BertTokenizer", "model_max_length": 3})
    )
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert"}))
    found = load_tokenizer(tmp_path)
    assert found.encode("hello world hello", False) == (5, 6, 5)
    assert len(found.encode("hello world hello", True)) == 5


def test_code_beside_a_tokenizer_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers")
    monkeypatch.setattr("builtins.input", lambda *_: "y")
    (tmp_path / "mine.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass Mine:\n    pass\n")
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps({"auto_map": {"AutoTokenizer": ["mine.Mine", None]}, "tokenizer_class": "Mine"})
    )
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert"}))
    (tmp_path / "vocab.txt").write_text("[UNK]\n")
    with pytest.raises(UserError, match="cannot be read"):
        load_tokenizer(tmp_path)
    assert not (tmp_path / "ran").exists()


def point(folder: Path, path: Path, **changed: Any) -> dict[str, Any]:
    return {p.name: p.default for p in FAMILY.parameters} | {
        **{"op": "serve", "workload": "trace", "trace": str(path), "trace_format": "sharegpt"},
        **{"tokenizer": str(folder), "requests": 4, "rate_per_s": 20.0, "arrivals": "constant"},
        **changed,
    }


def test_a_point_asks_the_engine_for_conversations_in_tokens_that_it_knows(
    tmp_path: Path, folder: Path
) -> None:
    talks = [
        talk(("human", words(9, n)), ("gpt", words(8)), ("human", words(7)), ("gpt", words(6)))
        for n in range(6)
    ]
    path = written(tmp_path / "talks.json", *talks, talk(("human", "w1"), ("gpt", "w2")))
    params = point(folder, path)
    assert check_trace(params) == []
    calls = draw_workload(params, 512, 1).calls
    assert [c.at_s for c in calls] == [0.0, 0.05, 0.1, 0.15]
    assert {(len(c.prompt), c.output_tokens) for c in calls} == {(10, 9)}  # type: ignore[arg-type]
    assert all(FIRST_TOKEN <= t < 512 for c in calls for t in c.prompt)  # type: ignore[union-attr]
    facts = trace_facts(params)["trace"]
    assert (facts["requests"], facts["conversations"], facts["tokens"]) == (
        *(4, 7),
        "folded from 3002 into 512: equal words stay equal",
    )
    whole = draw_workload(params | {"trace_turns": "all", "requests": 5}, 512, 1).calls
    assert [(c.after, c.carries) for c in whole] == [
        ((), False),
        ((0,), True),
        ((), False),
        ((2,), True),
        ((), False),
    ]
    assert [c.at_s for c in whole] == [0.0, None, 0.05, None, 0.1]


def test_equal_words_stay_equal_when_they_are_folded() -> None:
    known = folded((1, 2, 700, 1), 512)
    assert known == (5, 6, FIRST_TOKEN + 700 % 508, 5)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"tokenizer": None}, "needs a model's folder"),
        ({"arrivals": "trace"}, "conversations have no instants"),
        ({"trace_scale": 0.5}, "conversations are not scaled"),
        ({"trace_max_total": 4096}, "trace_max_total is above 2048"),
        ({"requests": 99}, "the file has 6 exchanges that can be asked for; 1 short_prompt"),
        ({"trace": "/nowhere"}, "cannot read the conversations"),
    ],
)
def test_a_point_that_cannot_be_is_told_before_it_runs(
    tmp_path: Path, folder: Path, changed: dict[str, Any], words: str
) -> None:
    talks = [talk(("human", "w1 w2 w3"), ("gpt", "w4 w5 w6")) for _ in range(6)]
    path = written(tmp_path / "talks.json", *talks, talk(("human", "w1"), ("gpt", "w2")))
    (problem, *_) = check_trace(point(folder, path, **changed))
    assert words in problem


def test_conversations_are_read_as_no_other_trace(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="conversations are no trace"):
        read_trace(written(tmp_path / "talks.json", PLAIN), "sharegpt")


def test_the_path_of_a_tokenizer_is_absolute() -> None:
    assert text_tokens.wrong_path("/a") is None
    assert "absolute path" in (text_tokens.wrong_path("a") or "")
