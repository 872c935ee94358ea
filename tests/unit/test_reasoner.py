"""The embedded reasoner: its problems and teacher, its weight files, its batched decoding, and what it can do."""

from __future__ import annotations

import json
import random
import re
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from paceline.families.reasoning.core.language import Draw, LanguageModel, Piece
from paceline.families.reasoning.core.problems import embedded
from paceline.families.reasoning.core.problems.embedded import (
    END,
    LEVELS,
    MAX_PROBE_TOKENS,
    PROBE,
    VOCABULARY,
    decode,
    draw,
    encode,
    extract,
)
from paceline.families.reasoning.core.reasoner import NAMES, Reasoner, load, weights_path
from paceline.families.reasoning.core.reasoner.decoder import Decoder
from paceline.families.reasoning.core.reasoner.evaluation import evaluate
from paceline.families.reasoning.core.reasoner.network import Network, Shape, initialise
from paceline.families.reasoning.core.reasoner.optimizer import orthogonal
from paceline.families.reasoning.core.reasoner.sampling import choose, uniform_numbers
from paceline.families.reasoning.core.reasoner.teacher import (
    CLEAN,
    NOISY,
    Example,
    example,
    misconception,
    step,
    trace,
)
from paceline.families.reasoning.core.reasoner.training import (
    CONTEXT,
    RECIPES,
    Recipe,
    batches,
    packed,
    train,
)
from paceline.families.reasoning.core.reasoner.weights import pack, read, unpack


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def weak() -> Reasoner:
    return load("weak")


def at(temperature: float, *key: int) -> Draw:
    return Draw(key=key, temperature=temperature)


def finish(model: LanguageModel, traces: list[int], chunk: int = 1000) -> dict[int, Piece]:
    """Advance traces to their ends in chunks, and join each one's pieces."""
    joined = {t: Piece(trace=t, tokens=(), logprobs=(), entropies=(), ended=False) for t in traces}
    for t in traces:
        model.advance(t, chunk)
    while not all(piece.ended for piece in joined.values()):
        for new in model.poll():
            old = joined[new.trace]
            joined[new.trace] = Piece(
                trace=new.trace,
                tokens=old.tokens + new.tokens,
                logprobs=old.logprobs + new.logprobs,
                entropies=old.entropies + new.entropies,
                ended=new.ended,
            )
            if not new.ended:
                model.advance(new.trace, chunk)
    return joined


def finish_under_way(model: LanguageModel) -> Piece:
    """Poll until the only trace under way is complete."""
    while True:
        if done := model.poll():
            return done[0]


def assert_same(one: Piece, other: Piece) -> None:
    assert one.tokens == other.tokens
    assert one.logprobs == pytest.approx(other.logprobs, abs=1e-9)
    assert one.entropies == pytest.approx(other.entropies, abs=1e-9)


class TestProblems:
    def test_no_problem_is_on_both_sides_of_the_split_even_with_its_branches_in_another_order(self) -> None:
        def canonical(tokens: tuple[int, ...]) -> str:
            return " | ".join(sorted(re.split(r" ?T\d ", decode(tokens)[2:-2])))

        held_out = {canonical(p.prompt) for seed in (0, 1) for p in draw(seed, 1000, levels=LEVELS)}
        trained = {canonical(p.prompt) for p in draw(0, 3000, levels=(1, 2, 3, 4), held_out=False)}
        assert len(held_out) > 1500 and len(trained) > 2000
        assert not held_out & trained

    def test_training_never_sees_a_held_out_problem(self) -> None:
        one = draw(0, 1, levels=(3,))[0]
        rng = random.Random(5)
        sides = [
            embedded._is_held_out(embedded.branches(embedded.one_problem(rng, 2, held_out=False).prompt))
            for _ in range(500)
        ]
        assert not any(sides) and embedded._is_held_out(embedded.branches(one.prompt))

    def test_a_draw_follows_from_its_seed_and_fewer_are_the_beginning_of_more(self) -> None:
        many = draw(7, 60, levels=(2, 5))
        assert draw(7, 25, levels=(2, 5)) == many[:25]
        assert draw(8, 60, levels=(2, 5)) != many
        assert [p.level for p in many[:4]] == [2, 5, 2, 5]
        assert len({p.key for p in many}) == 60

    def test_the_level_is_the_number_of_operations_and_the_answer_is_right(self) -> None:
        for problem in draw(3, 400, levels=LEVELS):
            symbols = decode(problem.prompt)
            chains = re.findall(r"T\d ([^T?]*)", symbols)
            operations = sum(len(re.findall(r"[-+*]", chain)) for chain in chains) + len(chains) - 1
            total = 0
            for chain in chains:
                nested = ""
                for part in re.findall(r"^\d+|[-+*] \d+", chain):
                    nested = f"({nested}{part})"
                total += eval(nested)
            assert operations == problem.level
            assert problem.answer == str(total % 19)

    def test_levels_from_three_on_come_with_several_branches(self) -> None:
        found = {len(embedded.branches(p.prompt)) for p in draw(0, 200, levels=(7, 8, 9, 10))}
        assert found == {1, 2, 3, 4}

    @pytest.mark.parametrize(("count", "levels"), [(-1, (1,)), (1, ()), (1, (0,)), (1, (11,)), (400, (1,))])
    def test_an_impossible_draw_is_refused(self, count: int, levels: tuple[int, ...]) -> None:
        with pytest.raises(ValueError, match=r"level|problems"):
            draw(0, count, levels=levels)

    def test_symbols_and_tokens_are_each_others_inverse(self) -> None:
        text = " ".join(VOCABULARY)
        assert decode(encode(text)) == text
        assert len(set(VOCABULARY)) == len(VOCABULARY)
        assert [VOCABULARY[n] for n in range(19)] == [str(n) for n in range(19)]

    def test_unknown_symbols_and_tokens_are_refused(self) -> None:
        with pytest.raises(ValueError, match="'19' is not"):
            encode("Q 19 ?")
        for token in (-1, len(VOCABULARY)):
            with pytest.raises(ValueError, match="not in the vocabulary"):
                decode([token])

    @pytest.mark.parametrize(
        "text", ["", "Q ?", "T1 3 ?", "Q 3 T1 4 ?", "Q T1 3 + ?", "Q T1 + 3 ?", "Q T1 3 4 5 ?", "Q T1 3"]
    )
    def test_what_is_no_problem_has_no_branches(self, text: str) -> None:
        with pytest.raises(ValueError, match=r"no problem|no chain"):
            embedded.branches(encode(text))

    @pytest.mark.parametrize(
        ("text", "answer"),
        [
            ("T1 3 + 4 = 7 ; A 7 EOS", "7"),
            ("A 0 EOS", "0"),
            ("A 3 EOS A 18 EOS", "18"),
            ("T1 3 + 4 = 7 ; A 7", None),
            ("T1 3 + 4 = 7 EOS", None),
            ("A 7 ; EOS", None),
            ("A 7 EOS PAD", None),
            ("A A EOS", None),
            ("A ; EOS", None),
            ("7 EOS", None),
            ("EOS", None),
            ("", None),
        ],
    )
    def test_only_a_finished_trace_has_an_answer(self, text: str, answer: str | None) -> None:
        assert extract(encode(text)) == answer


class TestTeacher:
    def test_every_trace_is_readable_and_fits_the_context(self) -> None:
        rng = random.Random(0)
        lengths = []
        for problem in draw(0, 600, levels=LEVELS, held_out=False):
            for teacher in (NOISY, CLEAN):
                written = trace(problem, teacher, rng)
                assert extract(written) is not None
                lengths.append(len(problem.prompt) + len(written))
        assert max(lengths) < CONTEXT

    def test_the_teacher_without_faults_is_always_right(self) -> None:
        perfect = RECIPES["strong"].teacher.__class__(
            name="perfect", slips=0, misconceived=0, misconceptions=0
        )
        rng = random.Random(0)
        for problem in draw(1, 200, levels=LEVELS):
            assert extract(trace(problem, perfect, rng)) == problem.answer

    def test_mistakes_are_as_frequent_as_stated(self) -> None:
        rng = random.Random(0)
        facts = [(a, op, b) for a in range(19) for op in "+-*" for b in range(1, 19)]
        believed = [f for f in facts if misconception(*f, NOISY.misconceived) is not None]
        assert len(believed) / len(facts) == pytest.approx(0.08, abs=0.03)
        plain = [f for f in facts if f not in believed]

        def wrong(teacher: object, some: list[tuple[int, str, int]]) -> float:
            flags = [step(*f, teacher, rng) != embedded.applied(*f) for _ in range(20) for f in some]
            return sum(flags) / len(flags)

        assert wrong(NOISY, [f for f in plain if f[1] != "*"]) == pytest.approx(0.10, abs=0.01)
        assert wrong(NOISY, [f for f in plain if f[1] == "*"]) == pytest.approx(0.20, abs=0.02)
        assert wrong(NOISY, believed) > 0.5
        assert wrong(CLEAN, facts) == pytest.approx(0.015, abs=0.004)

    def test_a_misconception_is_wrong_and_never_changes(self) -> None:
        believed = {b: misconception(4, "*", b, 1.0) for b in range(1, 19)}
        assert all(wrong != embedded.applied(4, "*", b) for b, wrong in believed.items())
        assert believed == {b: misconception(4, "*", b, 1.0) for b in range(1, 19)}
        assert len(set(believed.values())) > 5

    def test_an_interrupted_example_learns_the_answer_and_not_the_interruption(self) -> None:
        rng = random.Random(0)
        problem = draw(0, 1, levels=(6,), held_out=False)[0]
        made = [example(problem, NOISY, rng) for _ in range(400)]
        cut = [one for one in made if not all(one.learned[len(problem.prompt) :])]
        assert len(cut) / len(made) == pytest.approx(0.25, abs=0.07)
        for one in cut:
            assert one.tokens[-3:-2] == PROBE and one.learned[-3:] == (False, True, True)
            assert extract(one.tokens) is not None
        assert not any(any(one.learned[: len(problem.prompt)]) for one in made)


class TestTraining:
    SMALL = Shape(width=16, layers=2, heads=2, symbols=len(VOCABULARY), context=CONTEXT)

    def test_examples_that_share_a_row_do_not_see_each_other(self) -> None:
        network = Network(self.SMALL).double()
        initialise(network, torch.Generator().manual_seed(0))
        for layer in network.layers:
            torch.nn.init.normal_(layer.mix.weight, std=0.3)
        made = [
            Example(tokens=encode(text), learned=(True,) * len(text.split()))
            for text in ("Q T1 3", "A 4 EOS 7")
        ]
        batch = packed([made])
        alone = network(torch.tensor([made[1].tokens]))
        together = network(batch.tokens_BT, batch.visible_BTT)[:, 3:7]
        assert torch.allclose(alone, together, atol=1e-12)
        assert batch.targets_BT[0, :8].tolist() == [*encode("T1 3"), -100, *encode("4 EOS 7"), -100, -100]

    def test_rows_are_nearly_full_and_hold_whole_examples(self) -> None:
        source = batches(RECIPES["weak"])
        full = [(next(source).tokens_BT != embedded.PADDING).double().mean().item() for _ in range(20)]
        assert sum(full) / len(full) > 0.85

    def test_training_repeats_itself_and_its_file_can_be_read(self, tmp_path: Path) -> None:
        recipe = Recipe(name="small", shape=self.SMALL, teacher=CLEAN, steps=6, seed=3)
        for name in ("a", "b"):
            train(recipe, tmp_path / name, tmp_path / f"{name}.log")
        assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
        network, kept = read(tmp_path / "a", torch.float64)
        assert network.shape == self.SMALL
        assert (kept.metadata["seed"], kept.metadata["steps"]) == ("3", "6")
        assert json.loads((tmp_path / "a.log").read_text())["step"] == 6

    def test_orthogonalised_matrices_have_singular_values_near_one(self) -> None:
        generator = torch.Generator().manual_seed(0)
        for sizes in ((3, 8, 8), (2, 32, 8), (2, 8, 32)):
            values = torch.linalg.svdvals(orthogonal(torch.randn(sizes, generator=generator)))
            assert values.min() > 0.3 and values.max() < 1.3
            assert values.median() > 0.65

    @pytest.mark.parametrize("name", NAMES)
    def test_a_kept_model_names_its_recipe_and_its_log_ends_with_an_evaluation_of_these_weights(
        self, name: str
    ) -> None:
        _, kept = read(weights_path(name), torch.float64)
        recipe = RECIPES[name]
        assert kept.metadata["teacher"] == recipe.teacher.name
        assert (int(kept.metadata["seed"]), int(kept.metadata["steps"])) == (recipe.seed, recipe.steps)
        lines = [
            json.loads(line) for line in weights_path(name).with_suffix(".log.jsonl").read_text().splitlines()
        ]
        assert lines[-1]["evaluation"]["identity"] == load(name).identity == f"{name}-{kept.digest}"
        assert lines[-2]["step"] == recipe.steps

    def test_both_weight_files_are_small(self) -> None:
        assert sum(weights_path(name).stat().st_size for name in NAMES) <= 8_000_000


def file(header: object, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def entry(dtype: str = "F16", shape: object = (2,), offsets: object = (0, 4)) -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


class TestWeightFiles:
    def test_what_is_written_is_read(self) -> None:
        generator = torch.Generator().manual_seed(0)
        tensors = {
            "b": torch.randn(3, 5, generator=generator).half(),
            "a": torch.randn(7, generator=generator).half(),
        }
        got = unpack(pack(tensors, {"seed": "1"}))
        assert got.metadata == {"seed": "1"}
        assert sorted(got.tensors) == ["a", "b"]
        assert all(torch.equal(got.tensors[name], tensors[name]) for name in tensors)
        assert got.digest != unpack(pack(tensors, {"seed": "2"})).digest

    def test_data_begin_at_a_multiple_of_eight(self) -> None:
        for length in range(1, 10):
            content = pack({"x": torch.ones(1)}, {"note": "n" * length})
            assert int.from_bytes(content[:8], "little") % 8 == 0

    def test_other_precisions_are_read_as_they_are(self) -> None:
        for dtype, kind in (("F32", "f"), ("F64", "d")):
            data = struct.pack(f"<2{kind}", 1.5, -2.0)
            got = unpack(file({"x": entry(dtype, (1, 2), (0, len(data)))}, data)).tensors["x"]
            assert got.tolist() == [[1.5, -2.0]]

    @pytest.mark.parametrize(
        ("content", "reason"),
        [
            (b"", "header of 0 bytes"),
            (b"\x05\0\0", "in a file of 3"),
            (struct.pack("<Q", 500) + b"{}", "header of 500 bytes"),
            (struct.pack("<Q", 2**60) + b"{}", "header of"),
            (file(b"{]"), "not JSON"),
            (file(b"\xff\xfe"), "not JSON"),
            (file([1]), "not a JSON object"),
            (file({"__metadata__": [1]}), "metadata"),
            (file({"__metadata__": {"a": 1}}), "metadata"),
            (file({"x": 3}), "has the entry"),
            (file({"x": {"dtype": "F16"}}, b"1234"), "has the entry"),
            (file({"x": entry("I8")}, b"1234"), "types: F16, F32, F64"),
            (file({"x": entry(offsets=(0, 4, 8))}, b"1234"), "has the entry"),
            (file({"x": entry(shape=(3,))}, b"1234"), "has shape"),
            (file({"x": entry(shape=(-2,), offsets=(4, 0))}, b"1234"), "has shape"),
            (file({"x": entry(shape=(2.0,))}, b"1234"), "has shape"),
            (file({"x": entry()}, b"12"), "at the end"),
            (file({"x": entry()}, b"123456"), "at the end"),
            (file({"x": entry(offsets=(2, 6))}, b"123456"), "before 'x'"),
            (file({"x": entry(), "y": entry(offsets=(2, 6))}, b"123456"), "before 'y'"),
        ],
    )
    def test_a_malformed_file_is_refused_with_a_reason(self, content: bytes, reason: str) -> None:
        with pytest.raises(ValueError, match=reason):
            unpack(content)

    def test_weights_that_do_not_fit_their_stated_shape_are_refused(self, tmp_path: Path) -> None:
        shape = {"width": "8", "layers": "1", "heads": "2", "symbols": "5", "context": "16"}
        good = Network(Shape(**{k: int(v) for k, v in shape.items()})).state_dict()
        for metadata in (
            {},
            {**shape, "width": "16"},
            {**shape, "layers": "2"},
            {**shape, "heads": "3"},
            {**shape, "width": "w"},
        ):
            (tmp_path / "x").write_bytes(pack(good, metadata))
            with pytest.raises(ValueError, match="no network of the shape"):
                read(tmp_path / "x", torch.float64)
        (tmp_path / "x").write_bytes(pack(good, shape))
        read(tmp_path / "x", torch.float64)

    def test_an_unknown_name_is_refused(self) -> None:
        with pytest.raises(ValueError, match="there are: strong, weak"):
            load("../weak")


class TestSampling:
    def test_a_stream_belongs_to_its_key_and_stays_the_same(self) -> None:
        first = uniform_numbers((1, 2), 4)
        assert first.tolist() == uniform_numbers((1, 2), 9)[:4].tolist()
        assert first.tolist() == [
            0.5111036851419825,
            0.365392362484528,
            0.5595745640367806,
            0.9940103888953908,
        ]
        assert not set(first) & set(uniform_numbers((12,), 4)) and not set(first) & set(
            uniform_numbers((2, 1), 4)
        )
        many = uniform_numbers((5,), 20_000)
        assert many.min() >= 0 and many.max() < 1 and abs(many.mean() - 0.5) < 0.01

    def test_tokens_are_as_frequent_as_the_temperature_makes_them(self) -> None:
        logits = np.log(np.array([0.5, 0.25, 0.2, 0.05]))
        count = 20_000
        for temperature in (0.5, 1.0, 2.0):
            rows = np.tile(logits, (count, 1))
            chosen = choose(rows, np.full(count, temperature), uniform_numbers((3,), count))
            want = np.exp(logits / temperature) / np.exp(logits / temperature).sum()
            assert np.bincount(chosen.tokens, minlength=4) / count == pytest.approx(want, abs=0.012)
            assert chosen.logprobs == pytest.approx(logits[chosen.tokens])
            assert chosen.entropies == pytest.approx(np.full(count, -(np.exp(logits) * logits).sum()))

    def test_numbers_at_the_edges_choose_a_possible_token(self) -> None:
        logits = np.array([[-np.inf, 0.0, 0.0], [0.0, -1e9, 0.0]])
        edge = np.nextafter(1.0, 0.0)
        with np.errstate(invalid="ignore"):
            assert choose(logits, np.ones(2), np.array([0.0, edge])).tokens.tolist() == [1, 2]


class TestEngine:
    def plain(self, model: Reasoner, prompt: tuple[int, ...], key: Draw) -> Piece:
        """Decode one trace by a full forward pass for each token: no cache, no batch."""
        numbers = uniform_numbers(key.key, model.context)
        tokens, logprobs, entropies = list(prompt), [], []
        while len(tokens) < model.context and tokens[-1] != END:
            with torch.inference_mode():
                logits = model._network(torch.tensor([tokens]))[0, -1]
            at_one = torch.log_softmax(logits, 0)
            cumulative = torch.softmax(logits / key.temperature, 0).cumsum(0)
            token = int((cumulative <= numbers[len(logprobs)]).sum())
            tokens.append(token)
            logprobs.append(float(at_one[token]))
            entropies.append(float(-(at_one.exp() * at_one).sum()))
        ended = tuple(tokens[len(prompt) :])
        return Piece(trace=0, tokens=ended, logprobs=tuple(logprobs), entropies=tuple(entropies), ended=True)

    @pytest.mark.full
    def test_a_batch_decodes_what_a_plain_loop_without_a_cache_decodes(self, weak: Reasoner) -> None:
        some = draw(0, 8, levels=LEVELS[1:9])
        traces = [weak.begin(p.prompt, at(0.8, p.key, 0)) for p in some]
        got = finish(weak, traces)
        for problem, t in zip(some, traces, strict=True):
            assert_same(got[t], self.plain(weak, problem.prompt, at(0.8, problem.key, 0)))
            weak.drop(t)

    def test_any_batch_and_any_chunks_give_the_same_trace(self, weak: Reasoner) -> None:
        some = draw(1, 10, levels=LEVELS)
        keys = [at(1.0, p.key, 1) for p in some]
        traces = [weak.begin(p.prompt, key) for p, key in zip(some, keys, strict=True)]
        together = finish(weak, traces)
        for chunk in (1, 7):
            again = [weak.begin(p.prompt, key) for p, key in zip(some, keys, strict=True)][::-1]
            apart = finish(weak, again, chunk)
            for old, new in zip(traces, again[::-1], strict=True):
                assert_same(together[old], apart[new])
                weak.drop(new)
        for problem, key, t in zip(some[:3], keys, traces, strict=False):
            single = weak.begin(problem.prompt, key)
            assert_same(finish(weak, [single], 13)[single], together[t])
            weak.drop(single)
        for t in traces:
            weak.drop(t)

    def test_neighbours_that_come_and_are_dropped_change_nothing(self, weak: Reasoner) -> None:
        problem = draw(2, 1, levels=(9,))[0]
        alone = weak.begin(problem.prompt, at(0.9, 4))
        want = finish(weak, [alone])[alone]
        crowd = [weak.begin(p.prompt, at(1.0, p.key)) for p in draw(3, 30, levels=LEVELS)]
        for t in crowd:
            weak.advance(t, 200)
        late = weak.begin(problem.prompt, at(0.9, 4))
        weak.advance(late, 1000)
        got: list[Piece] = []
        while not got:
            got = [piece for piece in weak.poll() if piece.trace == late]
            for t in crowd[-2:]:
                weak.drop(t)
            del crowd[-2:]
        assert_same(got[0], want)
        for t in (*crowd, late, alone):
            weak.drop(t)

    def test_a_fork_continues_as_if_the_whole_prefix_had_been_the_prompt(self, weak: Reasoner) -> None:
        for index, problem in enumerate(draw(4, 6, levels=(4, 7, 10))):
            parent = weak.begin(problem.prompt, at(0.8, index))
            weak.advance(parent, 3 + 4 * index)
            head: list[Piece] = []
            while not head:
                head = weak.poll()
            pairs = [
                (
                    weak.fork(parent, forced, at(0.8, index, 1)),
                    weak.begin((*problem.prompt, *head[0].tokens, *forced), at(0.8, index, 1)),
                )
                for forced in ((), PROBE, encode("; W T1"))
            ]
            fresh = weak.begin(problem.prompt, at(0.8, index))
            own = [] if head[0].ended else [parent]
            got = finish(weak, [fresh, *own, *(trace for pair in pairs for trace in pair)])
            for child, whole in pairs:
                assert_same(got[child], got[whole])
                weak.drop(child)
                weak.drop(whole)
            rest = got[parent].tokens if own else ()
            assert head[0].tokens + rest == got[fresh].tokens
            weak.drop(parent)
            weak.drop(fresh)

    def test_a_stopping_token_ends_a_piece_and_not_the_trace(self, weak: Reasoner) -> None:
        problem = draw(10, 1, levels=(9,))[0]
        stops = encode("; W")
        undisturbed, stopped = (weak.begin(problem.prompt, at(0.8, 3)) for _ in range(2))
        want = finish(weak, [undisturbed])[undisturbed]
        pieces: list[Piece] = []
        while not (pieces and pieces[-1].ended):
            weak.advance(stopped, 1000, stops)
            before = len(pieces)
            while len(pieces) == before:
                pieces += weak.poll()
        assert sum((piece.tokens for piece in pieces), ()) == want.tokens
        assert len(pieces) > 3
        for piece in pieces[:-1]:
            assert piece.tokens[-1] in stops and not set(piece.tokens[:-1]) & set(stops) and not piece.ended
        fresh = weak.begin(problem.prompt, at(0.8, 3))
        weak.advance(fresh, 5, stops)
        while not (got := weak.poll()):
            pass
        weak.advance(fresh, 1000)
        rest = finish_under_way(weak)
        assert got[0].tokens + rest.tokens == want.tokens and rest.ended
        for t in (undisturbed, stopped, fresh):
            weak.drop(t)

    def test_a_fork_before_anything_is_decoded_is_a_second_trace(self, weak: Reasoner) -> None:
        problem = draw(5, 1, levels=(3,))[0]
        parent = weak.begin(problem.prompt, at(0.8, 1))
        child = weak.fork(parent, (), at(0.8, 2))
        got = finish(weak, [parent, child])
        assert_same(got[child], self.plain(weak, problem.prompt, at(0.8, 2)))
        weak.drop(parent)
        weak.drop(child)

    def test_temperature_zero_takes_the_likeliest_token_whatever_the_key(self, weak: Reasoner) -> None:
        problem = draw(6, 1, levels=(6,))[0]
        traces = [weak.begin(problem.prompt, at(0, key)) for key in (1, 2)]
        got = finish(weak, traces)
        assert_same(got[traces[0]], got[traces[1]])
        tokens = [*problem.prompt, *got[traces[0]].tokens]
        best = weak._network(torch.tensor([tokens]))[0].argmax(-1).tolist()
        assert best[len(problem.prompt) - 1 : -1] == tokens[len(problem.prompt) :]
        for t in traces:
            weak.drop(t)

    def test_a_score_is_the_sum_of_what_poll_reported(self, weak: Reasoner) -> None:
        problem = draw(7, 1, levels=(8,))[0]
        t = weak.begin(problem.prompt, at(1.2, 9))
        got = finish(weak, [t], 11)[t]
        (found, none) = weak.score([(problem.prompt, got.tokens), (problem.prompt, ())])
        assert found == pytest.approx(got.logprobs, abs=1e-9)
        assert none == []
        weak.drop(t)

    def test_steps_are_scored_alike_in_any_company_and_behind_steps_scored_before(
        self, weak: Reasoner
    ) -> None:
        embedded = draw(11, 40, levels=(1, 4, 9))
        shuffled, texts, begins = random.Random(5), {}, {}
        for n, problem in enumerate(embedded):
            texts[n] = [*problem.prompt, *(shuffled.randrange(19) for _ in range(40))]
            begins[n] = len(problem.prompt)
        found: dict[int, list[float]] = {n: [] for n in texts}
        while going := [n for n in texts if begins[n] < len(texts[n])]:
            round_of = shuffled.sample(going, k=max(len(going) * 3 // 4, 1))
            ends = {n: min(begins[n] + shuffled.randrange(1, 13), len(texts[n])) for n in round_of}
            asked = [(texts[n][: begins[n]], texts[n][begins[n] : ends[n]]) for n in round_of]
            for n, values in zip(round_of, weak.score(asked), strict=True):
                found[n] += values
                begins[n] = ends[n]
        for n, text in texts.items():
            logits = weak._network(torch.tensor([text]))[0, :-1].log_softmax(-1)
            want = logits.gather(1, torch.tensor(text)[1:, None])[:, 0].tolist()
            assert found[n] == pytest.approx(want[len(embedded[n].prompt) - 1 :], abs=1e-9)

    def test_a_trace_ends_at_the_longest_context(self, weak: Reasoner) -> None:
        prompt = encode("Q T1 3 + 4 ?") * 36
        t = weak.begin(prompt, at(0.8, 1))
        got = finish(weak, [t])[t]
        assert len(prompt) + len(got.tokens) <= weak.context and got.ended
        with pytest.raises(ValueError, match=r"257 tokens; 1 to 256"):
            weak.begin((1,) * 257, at(0.8, 1))
        full = weak.begin((1,) * 256, at(0.8, 1))
        with pytest.raises(ValueError, match="has ended"):
            weak.advance(full, 1)
        with pytest.raises(ValueError, match=r"257 tokens"):
            weak.fork(full, PROBE, at(0.8, 1))
        weak.drop(full)
        weak.drop(t)

    def test_slots_are_taken_again_after_a_thousand_dropped_traces(self) -> None:
        model = load("weak")
        prompts = [p.prompt for p in draw(8, 20, levels=(1, 2, 3))]
        first = model.num_slots
        for turn in range(100):
            traces = [model.begin(prompts[(turn + n) % 20], at(0.8, turn, n)) for n in range(10)]
            if turn % 10 == 0:
                for t in traces:
                    model.advance(t, 2)
                model.poll()
            for t in traces:
                model.drop(t)
        assert model.num_slots == first
        many = [model.begin(prompts[0], at(0.8, n)) for n in range(first + 1)]
        assert model.num_slots == 2 * first and len(many) == first + 1

    def test_traces_survive_the_growth_of_the_cache(self) -> None:
        model = load("weak")
        problem = draw(9, 1, levels=(10,))[0]
        t = model.begin(problem.prompt, at(0.8, 1))
        model.advance(t, 20)
        while not model.poll():
            pass
        before = model.cache_bytes
        others = [model.begin((*problem.prompt, *[5] * 90), at(0.8, n)) for n in range(40)]
        assert model.cache_bytes > 2 * before
        want = self.plain(model, problem.prompt, at(0.8, 1))
        assert finish(model, [t, *others[:2]])[t].tokens == want.tokens[20:]

    def test_misuse_is_refused(self, weak: Reasoner) -> None:
        t = weak.begin(encode("Q T1 3 + 4 ?"), at(0.8, 1))
        with pytest.raises(ValueError, match="at least 1"):
            weak.advance(t, 0)
        weak.advance(t, 1000)
        with pytest.raises(ValueError, match="under way already"):
            weak.advance(t, 1)
        with pytest.raises(ValueError, match="cannot be copied"):
            weak.fork(t, (), at(0.8, 1))
        while not weak.poll():
            pass
        with pytest.raises(ValueError, match="has ended"):
            weak.advance(t, 1)
        weak.drop(t)
        for call in (
            weak.drop,
            lambda gone: weak.advance(gone, 1),
            lambda gone: weak.fork(gone, (), at(0.8, 1)),
        ):
            with pytest.raises(ValueError, match=f"no trace {t}"):
                call(t)
        for prompt in ((), (-1,), (len(VOCABULARY),)):
            with pytest.raises(ValueError, match="tokens"):
                weak.begin(prompt, at(0.8, 1))
            with pytest.raises(ValueError, match="tokens"):
                weak.score([(prompt, ())])
        for temperature in (-0.1, float("nan"), float("inf")):
            with pytest.raises(ValueError, match="temperature"):
                weak.begin((1,), at(temperature, 1))
        assert weak.poll() == []


class TestAbility:
    @pytest.mark.full
    def test_the_weak_model_errs_often_and_votes_well_and_the_strong_one_seldom_errs(
        self, weak: Reasoner
    ) -> None:
        some = draw(11, 80, levels=LEVELS)
        figures = evaluate(weak, some, 4, 0.8)
        assert 0.45 < figures.pass_at_1 < 0.75
        assert figures.readable > 0.97
        assert figures.majority[4] > figures.pass_at_1
        strong = evaluate(load("strong"), some[:40], 2, 0.8)
        assert strong.pass_at_1 >= figures.pass_at_1 + 0.20

    def test_a_probe_names_an_answer_at_any_place(self, weak: Reasoner) -> None:
        named = []
        for n, problem in enumerate(draw(12, 20, levels=(5, 8))):
            parent = weak.begin(problem.prompt, at(0.8, n))
            weak.advance(parent, 3 + n)
            while not weak.poll():
                pass
            probe = weak.fork(parent, PROBE, at(0, n))
            weak.advance(probe, MAX_PROBE_TOKENS)
            pieces: list[Piece] = []
            while not pieces:
                pieces = weak.poll()
            named.append(extract((*PROBE, *pieces[0].tokens)) is not None and pieces[0].ended)
            weak.drop(parent)
            weak.drop(probe)
        assert sum(named) >= 18


def test_a_text_that_several_slots_begin_with_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    decoder, alone = (Decoder(read(weights_path("weak"), torch.float64)[0]) for _ in range(2))
    rows = []
    read_rows = decoder._read

    def counted(slots: Sequence[int], *others: Any) -> torch.Tensor:
        rows.append(list(slots))
        return read_rows(slots, *others)

    monkeypatch.setattr(decoder, "_read", counted)
    texts = [[5, 6, 7], [5, 6], [5, 6, 7], [8, 6, 7]]
    with torch.inference_mode():
        decoder.read(range(4), [0] * 4, texts, [0] * 4)
        decoder.read([0, 1, 2], [3, 2, 3], [[9], [9, 9], [9]], [0] * 3)  # what is before these may differ
        for slot, text in enumerate(texts):
            alone._read([slot], [0], [text], [0])
            held, wanted = decoder.cache.get(slot, len(text)), alone.cache.get(slot, len(text))
            assert torch.allclose(held, wanted, rtol=0, atol=1e-12)
    assert rows == [[0, 1, 3], [0, 1, 2]]
