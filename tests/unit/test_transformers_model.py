"""Networks of transformers as models of the family: batched, single and forked traces, ends, limits, refusals."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import tiny_networks
import torch

from paceline.base.errors import PrerequisiteError, UserError
from paceline.families.reasoning.core.backends import pretrained
from paceline.families.reasoning.core.backends.pretrained import load
from paceline.families.reasoning.core.backends.slot_cache import FIRST_SLOTS, SlotCache
from paceline.families.reasoning.core.backends.transformers_model import TransformersModel
from paceline.families.reasoning.core.language import Draw, LanguageModel, Piece

PROMPTS = ([6, 7, 8], [9], [10, 11, 12, 13, 14, 15, 16], [6, 7, 8], [17, 18])


@pytest.fixture(scope="module", params=["llama", "gpt2"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_networks.make(tmp_path_factory.mktemp("network"), request.param)


@pytest.fixture(scope="module")
def shared(folder: Path) -> TransformersModel:
    return load(str(folder), dtype=torch.float64)


@pytest.fixture
def model(shared: TransformersModel) -> TransformersModel:
    """Return a network in float64 whose traces are all closed."""
    for handle in list(shared._traces):
        shared.drop(handle)
    return shared


def draw(key: int, temperature: float = 1.0) -> Draw:
    return Draw(key=(5, key), temperature=temperature)


def finish(model: LanguageModel, handles: Sequence[int]) -> dict[int, Piece]:
    found: dict[int, Piece] = {}
    while len(found) < len(handles):
        found.update({piece.trace: piece for piece in model.poll()})
    return found


def alone(
    model: LanguageModel, prompt: Sequence[int], key: int, tokens: int, temperature: float = 1.0
) -> Piece:
    handle = model.begin(prompt, draw(key, temperature))
    model.advance(handle, tokens)
    piece = finish(model, [handle])[handle]
    model.drop(handle)
    return piece


def plain_logits(model: TransformersModel, tokens: Sequence[int]) -> torch.Tensor:
    with torch.inference_mode():
        logits: torch.Tensor = model._network(input_ids=torch.tensor([list(tokens)]), use_cache=False).logits[
            0
        ]
    return logits.double()


def close(given: Sequence[float], wanted: Sequence[float]) -> bool:
    return list(given) == pytest.approx(list(wanted), abs=1e-9)


def test_batched_and_single_traces_have_the_same_tokens(model: TransformersModel) -> None:
    handles = [model.begin(prompt, draw(key, 0.8)) for key, prompt in enumerate(PROMPTS)]
    for handle in handles:
        model.advance(handle, 30)
    together = finish(model, handles)
    for key, (handle, prompt) in enumerate(zip(handles, PROMPTS, strict=True)):
        single = alone(model, prompt, key, 30, 0.8)
        assert together[handle].tokens == single.tokens
        assert together[handle].ended == single.ended
        assert close(together[handle].logprobs, single.logprobs)
        assert close(together[handle].entropies, single.entropies)
    assert together[handles[0]].tokens != together[handles[3]].tokens  # one prompt, two draws
    assert (
        len({len(piece.tokens) for piece in together.values()}) > 1
    )  # rows left the batch at their own times


def test_tokens_do_not_depend_on_how_they_are_asked_for(model: TransformersModel) -> None:
    whole = alone(model, PROMPTS[0], 1, 12)
    handle = model.begin(PROMPTS[0], draw(1))
    others = [model.begin(prompt, draw(9)) for prompt in PROMPTS]
    parts: list[int] = []
    for count, other in zip((1, 4, 2, 5), others, strict=False):
        model.advance(handle, count)
        model.advance(other, 3)
        parts += finish(model, [handle, other])[handle].tokens
        if len(parts) == len(whole.tokens):
            break
    assert tuple(parts) == whole.tokens


def test_logprobs_and_entropies_are_those_of_a_plain_pass(model: TransformersModel) -> None:
    for temperature in (0.0, 0.7):
        piece = alone(model, PROMPTS[2], 4, 16, temperature)
        logprobs_TV = plain_logits(model, [*PROMPTS[2], *piece.tokens])[len(PROMPTS[2]) - 1 : -1].log_softmax(
            -1
        )
        picked = logprobs_TV.gather(1, torch.tensor(piece.tokens)[:, None])[:, 0]
        assert close(piece.logprobs, picked.tolist())
        assert close(piece.entropies, (-(logprobs_TV.exp() * logprobs_TV).sum(-1)).tolist())
        if temperature == 0:
            assert list(piece.tokens) == logprobs_TV.argmax(-1).tolist()


def test_a_fork_copies_the_cache_and_equals_a_trace_begun_there(model: TransformersModel) -> None:
    parent = model.begin(PROMPTS[2], draw(3))
    model.advance(parent, 5)
    told = finish(model, [parent])[parent].tokens
    read = []
    forward = model._pass

    def watched(slots: list[int], starts: Sequence[int], chunks: Sequence[Sequence[int]]) -> torch.Tensor:
        read.append(sum(len(chunk) for chunk in chunks))
        return forward(slots, starts, chunks)

    model._pass = watched  # type: ignore[method-assign]
    try:
        child = model.fork(parent, [8, 9], draw(11))
        model.advance(child, 6)
        forked = finish(model, [child])[child]
    finally:
        del model._pass
    assert read[:2] == [2, 1]  # the parent's last token and the first forced one, then the other one
    assert forked.tokens == alone(model, [*PROMPTS[2], *told, 8, 9], 11, 6).tokens
    before = alone(model, PROMPTS[2], 3, 12).tokens
    model.advance(parent, 12 - len(told))
    assert (*told, *finish(model, [parent])[parent].tokens) == before  # the parent is as it was


def test_a_trace_dropped_under_way_stops_and_leaves_the_others_as_they_are(model: TransformersModel) -> None:
    wanted = alone(model, PROMPTS[4], 2, 10)
    handles = [model.begin(prompt, draw(2)) for prompt in (PROMPTS[0], PROMPTS[4], PROMPTS[1])]
    for handle in handles:
        model.advance(handle, 10)
    assert model.poll() == []
    free = model._cache.num_free
    model.drop(handles[0])
    assert model._cache.num_free == free + 1
    late = model.begin(PROMPTS[2], draw(6))  # takes the slot that is free again
    model.advance(late, 4)
    found = finish(model, [handles[1], handles[2], late])
    assert handles[0] not in found
    assert found[handles[1]].tokens == wanted.tokens
    assert found[late].tokens == alone(model, PROMPTS[2], 6, 4).tokens


def test_an_end_token_ends_a_trace_where_it_is_decoded_and_not_in_a_prompt(model: TransformersModel) -> None:
    assert model.end == {1, 2}
    for key in range(100):
        piece = alone(model, [2, 1], key, 30)
        inside = [token in model.end for token in piece.tokens]
        assert not any(inside[:-1])
        assert piece.ended is inside[-1] or len(piece.tokens) == 30
        if piece.ended:
            handle = model.begin([2, 1], draw(key))
            model.advance(handle, 30)
            finish(model, [handle])
            with pytest.raises(ValueError, match="has ended"):
                model.advance(handle, 1)
            child = model.fork(handle, [8], draw(0))
            model.advance(child, 1)
            assert len(finish(model, [child])[child].tokens) == 1
            return
    raise AssertionError("no trace has ended")


def test_a_stopping_token_is_the_last_of_its_piece_and_the_trace_goes_on(model: TransformersModel) -> None:
    whole = alone(model, PROMPTS[0], 1, 12)
    stop = whole.tokens[2]
    handle = model.begin(PROMPTS[0], draw(1))
    model.advance(handle, 12, {stop})
    first = finish(model, [handle])[handle]
    assert first.tokens == whole.tokens[: whole.tokens.index(stop) + 1]
    assert not first.ended
    model.advance(handle, len(whole.tokens) - len(first.tokens))
    assert (*first.tokens, *finish(model, [handle])[handle].tokens) == whole.tokens


def test_the_context_ends_a_trace(model: TransformersModel) -> None:
    assert model.context == tiny_networks.CONTEXT
    prompt = [7] * (model.context - 2)
    piece = alone(model, prompt, 0, 100)
    assert len(piece.tokens) <= 2
    assert piece.ended
    with pytest.raises(ValueError, match="49 tokens; 1 to 48"):
        model.begin([7] * 49, draw(0))
    full = model.begin([7] * 48, draw(0))
    with pytest.raises(ValueError, match="has ended"):
        model.advance(full, 1)
    with pytest.raises(ValueError, match="49 tokens"):
        model.fork(full, [7], draw(0))


def test_scores_are_the_logprobs_of_a_plain_pass(model: TransformersModel) -> None:
    piece = alone(model, PROMPTS[0], 3, 9)
    assert close(model.score([(PROMPTS[0], piece.tokens)])[0], piece.logprobs)
    assert model.score([(PROMPTS[0], [])]) == [[]]
    with pytest.raises(ValueError, match="0 tokens"):
        model.score([([], [3])])


def test_what_makes_no_sense_is_refused(model: TransformersModel) -> None:
    handle = model.begin(PROMPTS[0], draw(0))
    with pytest.raises(ValueError, match="0 tokens asked"):
        model.advance(handle, 0)
    model.advance(handle, 2)
    with pytest.raises(ValueError, match="under way already"):
        model.advance(handle, 2)
    with pytest.raises(ValueError, match="cannot be forked"):
        model.fork(handle, [6], draw(0))
    with pytest.raises(ValueError, match="no trace 123456"):
        model.drop(123456)
    with pytest.raises(ValueError, match="tokens are 0 to 199"):
        model.begin([200], draw(0))
    with pytest.raises(ValueError, match="a temperature of -1"):
        model.begin([6], draw(0, -1.0))
    model.drop(handle)
    assert model.poll() == []


def test_slots_grow_with_the_traces_and_are_taken_again(model: TransformersModel) -> None:
    wanted = [alone(model, [6 + key % 9], key, 4).tokens for key in range(2 * FIRST_SLOTS + 1)]
    handles = [model.begin([6 + key % 9], draw(key)) for key in range(2 * FIRST_SLOTS + 1)]
    for handle in handles[::2]:
        model.advance(handle, 4)
    found = finish(model, handles[::2])  # every second slot: rows are gathered
    assert [found[h].tokens for h in handles[::2]] == wanted[::2]
    slots = model._cache.num_slots
    for handle in handles:
        model.drop(handle)
    assert model._cache.num_free == slots == 4 * FIRST_SLOTS
    assert model.cache_bytes > 0


def test_the_same_prompt_is_read_once(model: TransformersModel) -> None:
    handles = [model.begin(PROMPTS[2], draw(key)) for key in range(4)]
    for handle in handles:
        model.advance(handle, 3)
    read = []
    forward = model._pass
    model._pass = lambda *given: read.append(len(given[0])) or forward(*given)  # type: ignore[method-assign,func-returns-value]
    try:
        found = finish(model, handles)
    finally:
        del model._pass
    assert read == [1, 4, 4, 4]
    assert [found[h].tokens for h in handles] == [alone(model, PROMPTS[2], key, 3).tokens for key in range(4)]


def test_text_and_tokens(model: TransformersModel, tmp_path: Path) -> None:
    tokens = model.encode("what is two plus two")
    assert model.decode(tokens) == "what is two plus two"
    assert model.decode([*tokens, 1]) == "what is two plus two"  # special tokens are no text
    user, end, machine = (tiny_networks.SPECIAL.index(s) for s in ("<user>", "<end>", "<model>"))
    assert model.chat("what is two plus two") == (user, *tokens, end, machine)


def test_a_tokenizer_without_a_template_begins_texts_its_own_way(tmp_path: Path) -> None:
    bare = load(str(tiny_networks.make(tmp_path, "gpt2", template=None)))
    assert bare.chat("two plus two") == bare.encode("two plus two")


def test_the_identity_follows_the_weights_and_their_type(tmp_path: Path) -> None:
    folder = tiny_networks.make(tmp_path / "tiny", "gpt2")
    first = load(str(folder))
    assert first.identity.startswith("tiny-")
    assert first.identity.endswith(":float32")
    assert not first.repeatable
    wide = load(str(folder), dtype=torch.float64)
    assert wide.repeatable
    assert wide.identity == first.identity.replace("float32", "float64")
    weights = folder / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    assert load(str(folder)).identity != first.identity


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_float32_and_eager_attention_give_the_same_text(
    folder: Path, model: TransformersModel, attention: str
) -> None:
    narrow = load(str(folder), attention=attention, context=30)
    assert narrow.context == 30
    for key, prompt in enumerate(PROMPTS):
        assert alone(narrow, prompt, key, 10).tokens == alone(model, prompt, key, 10).tokens


def test_bfloat16_decodes(folder: Path) -> None:
    piece = alone(load(str(folder), dtype=torch.bfloat16), PROMPTS[0], 0, 5)
    assert 1 <= len(piece.tokens) <= 5


def test_a_model_that_cannot_be_loaded_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(UserError, match="it is no folder here and names no revision"):
        load("someone/model")
    with pytest.raises(UserError, match=r"(?s)the model cannot be read: .*expected: config.json"):
        load(str(tmp_path))
    small = tiny_networks.make(tmp_path / "tiny", "gpt2")
    with pytest.raises(UserError, match=r"(?s)a context of 49 tokens.*expected: 2 to 48"):
        load(str(small), context=49)
    (small / "model.safetensors").unlink()
    with pytest.raises(UserError, match="the model cannot be read"):
        load(str(small))


def test_a_missing_library_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> object:
        raise ImportError(name)

    monkeypatch.setattr(pretrained.importlib, "import_module", missing)
    with pytest.raises(PrerequisiteError, match=r"pip install 'paceline\[hf\]'"):
        load("someone/model@main")


def test_a_network_that_keeps_other_state_is_refused(folder: Path) -> None:
    whole = load(str(folder))
    network: Any = whole._network
    forward = network.forward

    def forgetful(*given: Any, **named: Any) -> Any:
        found = forward(*given, **named)
        if "past_key_values" in named:
            found.logits = found.logits + 0.1 * found.logits.abs().max()
        return found

    network.forward = forgetful
    with pytest.raises(UserError, match=r"(?s)cannot be decoded over a cache.*its logits differ by 0\.1"):
        TransformersModel(network, whole._tokenizer, identity="odd")
    network.forward = lambda *_, **__: None
    with pytest.raises(UserError, match="cannot be decoded over a cache of keys and values: AttributeError"):
        TransformersModel(network, whole._tokenizer, identity="odd")


def test_logits_that_are_no_numbers_are_never_drawn_from(folder: Path) -> None:
    broken = load(str(folder))
    handle = broken.begin(PROMPTS[0], draw(0))
    broken.advance(handle, 3)
    with torch.inference_mode():
        broken._network.get_input_embeddings().weight.fill_(float("nan"))
    with pytest.raises(ArithmeticError, match="are no numbers"):
        broken.poll()


def test_a_cache_never_grows_beyond_the_context() -> None:
    cache = SlotCache(100)
    cache.reserve(99)
    assert cache.num_positions == 100
    assert cache.size_bytes == 0
