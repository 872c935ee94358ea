"""The reference engine under every scheduler: answers of a plain computation, no memory lost, wrong steps refused."""

from __future__ import annotations

import importlib
import random
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.families.serving.api.layers import Shape
from paceline.families.serving.api.scheduling import Room, Scheduler, Step, View
from paceline.families.serving.core.engine.blocks import Blocks, OutOfBlocksError
from paceline.families.serving.core.engine.core import Engine, Output, RefusedStepError, Work
from paceline.families.serving.core.engine.front import BadRequestError, read_request, read_tokens
from paceline.families.serving.core.engine.model import Model
from paceline.families.serving.core.engine.reference import Reference
from paceline.families.serving.core.engine.reference import forward as plain_forward
from paceline.families.serving.core.engine.stepper import Stepper
from paceline.spec import content

SCHEDULERS = {
    "static_batching": "StaticBatching",
    "orca": "Orca",
    "chunked_prefill": "ChunkedPrefill",
    "lru_prefix_cache": "LruPrefixCache",
    "lpm": "LongestPrefixMatch",
    "vtc": "VirtualTokenCounter",
    "dlpm": "DeficitLongestPrefixMatch",
    "batchllm": "BatchLlm",
}
MODEL = {"layers": 2, "hidden": 32, "heads": 4, "kv_heads": 2, "vocab": 64, "max_context": 256, "seed": 5}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Compute on one thread: others wait for each other longer than such small matrices take."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def scheduler(name: str, **options: float) -> Scheduler:
    module = importlib.import_module(f"paceline.baselines.serving.{name}")
    made: Scheduler = getattr(module, SCHEDULERS[name])(**options)
    return made


@cache
def reference() -> Reference:
    return Reference(MODEL)


def draw(work: Sequence[Work]) -> list[int]:
    """Compute nothing: a token is a number that depends on the place alone."""
    return [4 + (piece.sequence.number + len(piece.sequence.tokens)) % 50 for piece in work if piece.ends]


def engine_of(
    planner: Scheduler,
    compute: Callable[[Sequence[Work]], list[int]] = draw,
    *,
    num_blocks: int = 64,
    block_size: int = 4,
    max_batch: int = 8,
    token_budget: int = 32,
) -> Engine:
    return Engine(
        planner,
        compute,
        num_blocks=num_blocks,
        block_size=block_size,
        max_batch=max_batch,
        token_budget=token_budget,
    )


def test_an_answer_is_computed_once_and_a_wrong_one_is_still_found(monkeypatch: pytest.MonkeyPatch) -> None:
    judge, prompt = Reference(MODEL), (5, 9, 12)
    answer = judge.greedy(prompt, 4)
    calls: list[int] = []

    def counted(*given: Any) -> torch.Tensor:
        calls.append(1)
        return plain_forward(*given)

    monkeypatch.setattr("paceline.families.serving.core.engine.reference.forward", counted)
    assert judge.judge(prompt, answer) == judge.judge(prompt, tuple(answer))
    assert len(calls) == 2, "one forward in float64 and one in the engine's precision"
    wrong = [*answer[:2], (answer[2] + 1) % 64, answer[3]]
    assert judge.judge(prompt, wrong).wrong_at == 2
    assert judge.judge((*prompt, 7), answer) != judge.judge(prompt, answer)
    assert len(calls) == 6


def test_every_scheduler_is_tried() -> None:
    found = content.techniques("serving").values()
    assert {s.path.stem for s in found if "serve" in s.info.implements} == set(SCHEDULERS)


@pytest.mark.parametrize("name", sorted(SCHEDULERS))
@given(
    seed=st.integers(0, 10**6),
    block_size=st.sampled_from([1, 3, 8, 16]),
    room=st.integers(64, 200),
    max_batch=st.integers(1, 6),
    budget=st.integers(6, 48),
)
@settings(max_examples=5, deadline=None)
def test_answers_are_those_of_a_plain_computation_whatever_the_schedule(
    name: str, seed: int, block_size: int, room: int, max_batch: int, budget: int
) -> None:
    rng = random.Random(seed)
    num_blocks = -(-room // block_size) + 1
    model = Model(Shape.of(MODEL), num_blocks * block_size)
    engine = engine_of(
        scheduler(name),
        Stepper(model, block_size),
        num_blocks=num_blocks,
        block_size=block_size,
        max_batch=max_batch,
        token_budget=budget,
    )
    shared = [rng.randrange(4, 64) for _ in range(20)]
    prompts: dict[int, list[int]] = {}
    answers: dict[int, list[int]] = {}
    cancelled: set[int] = set()
    left = 10
    while engine.busy or left:
        while left and rng.random() < 0.5:
            left -= 1
            own = [rng.randrange(4, 64) for _ in range(rng.randint(1, 12))]
            prompt = shared[: rng.choice([0, 7, 20])] + own
            number = engine.submit(prompt, rng.randint(1, 12), tenant=f"t{rng.randrange(3)}")
            prompts[number], answers[number] = prompt, []
        if engine.busy:
            for output in engine.step(0.0):
                answers[output.number].append(output.token)
            engine.check()
        if prompts and rng.random() < 0.05:
            gone = rng.choice(list(prompts))
            engine.cancel(gone)
            cancelled.add(gone)
            engine.check()
    assert engine.blocks.num_free == num_blocks
    for number, prompt in prompts.items():
        if answers[number]:
            judged = reference().judge(prompt, answers[number])
            assert judged.wrong_at is None, (number, judged)
    assert engine.counters.finished + engine.counters.cancelled == 10


def test_what_is_likeliest_is_right_and_another_token_is_not() -> None:
    prompt = [4, 9, 33]
    greedy = reference().greedy(prompt, 6)
    assert reference().judge(prompt, greedy).wrong_at is None
    for place in range(6):
        wrong = list(greedy)
        wrong[place] = (wrong[place] + 1) % 64
        judged = reference().judge(prompt, wrong)
        assert judged.wrong_at == place
        assert judged.expected == greedy[place]


@pytest.mark.parametrize("broken", ["position", "slot", "mask", "order"])
def test_an_engine_that_computes_something_else_is_found_out(broken: str) -> None:
    model = Model(Shape.of(MODEL), 64 * 4)
    stepper = Stepper(model, 4)
    make = stepper._batch

    def wrong(work: Sequence[Work]) -> Any:
        from dataclasses import replace

        batch = make(work)
        match broken:
            case "position":
                return replace(batch, positions_N=batch.positions_N + (batch.positions_N > 12))
            case "slot":
                return replace(batch, blocks_DC=batch.blocks_DC.roll(1, 0))
            case "mask":
                return replace(batch, lengths_D=batch.lengths_D - (batch.lengths_D > 12).long())
            case _:
                return replace(batch, last_rows=batch.last_rows.flip(0))

    stepper._batch = wrong  # type: ignore[method-assign]
    engine = engine_of(scheduler("orca"), stepper)
    rng = random.Random(1)
    prompts = [[rng.randrange(4, 64) for _ in range(n)] for n in (9, 11, 14, 10)]
    answers: dict[int, list[int]] = {engine.submit(p, 8): [] for p in prompts}
    while engine.busy:
        for output in engine.step(0.0):
            answers[output.number].append(output.token)
    assert any(reference().judge(p, answers[n]).wrong_at is not None for n, p in enumerate(prompts))


@pytest.mark.parametrize(
    ("name", "num"),
    [*((name, 1500) for name in sorted(SCHEDULERS)), pytest.param("dlpm", 10_000, marks=pytest.mark.full)],
)
def test_no_block_is_lost_over_many_requests(name: str, num: int) -> None:
    rng = random.Random(0)
    engine = engine_of(scheduler(name), num_blocks=80)
    begun = 0
    prefixes = [[rng.randrange(4, 60) for _ in range(16)] for _ in range(6)]
    while begun < num or engine.busy:
        while begun < num and len(engine._waiting) < 12:
            prompt = rng.choice(prefixes) + [rng.randrange(4, 60) for _ in range(rng.randint(1, 9))]
            engine.submit(prompt, rng.randint(1, 24), tenant=f"t{begun % 3}")
            begun += 1
        engine.step(0.0)
        if rng.random() < 0.01:
            engine.cancel(rng.randrange(begun))
    engine.check()
    assert engine.blocks.num_free == 80
    assert engine.counters.finished + engine.counters.cancelled == num
    if name not in ("static_batching", "orca", "chunked_prefill"):
        assert engine.counters.prefix_hit_tokens > 0


def drain(engine: Engine) -> list[Output]:
    heard: list[Output] = []
    while engine.busy:
        heard += engine.step(0.0)
    return heard


def test_continuous_batching_needs_a_third_of_the_steps_of_static_batching() -> None:
    rng = random.Random(0)
    wanted = [min(256, max(1, round(rng.lognormvariate(2.5, 1.3)))) for _ in range(400)]
    steps = {}
    for name in ("static_batching", "orca"):
        engine = engine_of(scheduler(name), num_blocks=4000, max_batch=32, token_budget=512)
        for tokens in wanted:
            engine.submit([5] * 8, tokens)
        assert len(drain(engine)) == sum(wanted)
        steps[name] = engine.counters.steps
    assert steps["static_batching"] >= 3 * steps["orca"]


def test_a_prompt_stalls_nobody_when_it_is_computed_in_parts() -> None:
    longest = {}
    for name in ("orca", "chunked_prefill"):
        sizes: list[int] = []

        def compute(work: Sequence[Work], sizes: list[int] = sizes) -> list[int]:
            sizes.append(sum(p.count for p in work))
            return draw(work)

        engine = engine_of(
            scheduler(name), compute, num_blocks=400, token_budget=200 if name == "orca" else 24
        )
        engine.submit([5] * 10, 30)
        engine.step(0.0)
        engine.submit([6] * 150, 2)
        heard = drain(engine)
        assert sum(o.number == 0 for o in heard) == 29
        longest[name] = max(sizes)
    assert longest["chunked_prefill"] <= 24
    assert longest["orca"] > 150


def test_what_begins_alike_is_computed_once() -> None:
    engine = engine_of(scheduler("lru_prefix_cache"), num_blocks=100, token_budget=100)
    engine.submit([7] * 40, 2)
    drain(engine)
    engine.submit([7] * 40 + [8, 9], 2)
    drain(engine)
    assert engine.counters.prefix_hit_tokens == 40
    assert engine.counters.computed_prompt_tokens == 42


def test_the_last_token_of_a_prompt_is_always_computed() -> None:
    engine = engine_of(scheduler("lru_prefix_cache"), num_blocks=100, token_budget=100)
    for _ in range(2):
        engine.submit([7] * 40, 2)
        drain(engine)
    assert engine.counters.prefix_hit_tokens == 36


def served_order(name: str, **options: float) -> list[str]:
    """Let a tenant with a shared prefix and one without compete; return who was admitted in which order."""
    engine = engine_of(scheduler(name, **options), num_blocks=60, max_batch=2, token_budget=64)
    engine.submit([9] * 32, 1, tenant="warm")
    drain(engine)
    order: list[str] = []
    tenants = {}
    for n in range(24):
        greedy = n % 4 != 3
        tenant = "greedy" if greedy else "modest"
        prompt = [9] * 32 + [n + 4] if greedy else [n + 4] * 33
        tenants[engine.submit(prompt, 3, tenant=tenant)] = tenant
    seen: set[int] = set()
    while engine.busy:
        for output in engine.step(0.0):
            if output.number not in seen:
                seen.add(output.number)
                order.append(tenants[output.number])
    return order


def test_longest_prefix_match_starves_whom_a_fair_scheduler_serves() -> None:
    assert served_order("lpm").index("modest") == 18  # everybody else first
    assert served_order("vtc").index("modest") <= 2
    assert served_order("dlpm", quantum=24).index("modest") <= 6
    assert served_order("dlpm", quantum=1e6).index("modest") == 18  # credit without end is no credit at all


class Wrong:
    """Schedulers that ask for what there is not; each is refused with its reason."""

    shares_prefixes = False

    def __init__(self, how: str) -> None:
        self._how = how

    def plan(self, view: View) -> Step:
        everything = {r.number: r.missing for r in (*view.running, *view.waiting)}
        match self._how:
            case "over budget":
                return Step(tokens={0: 33})
            case "unknown":
                return Step(tokens={99: 1})
            case "more than there is":
                return Step(tokens={1: 6})
            case "nothing at all":
                return Step()
            case "a fraction":
                return Step(tokens={0: 0.5})  # type: ignore[dict-item]
            case "less than none":
                return Step(tokens={0: -1})
            case "too many":
                return Step(tokens=dict.fromkeys(range(9), 1))
            case "preempts who waits":
                return Step(preempt=[0])
            case "preempts twice":
                return Step(tokens={0: 1}) if not view.running else Step(preempt=[0, 0])
            case "preempts and computes":
                return Step(tokens={0: 1}) if not view.running else Step(preempt=[0], tokens={0: 1})
            case "memory that is not there":
                return Step(
                    tokens={number: min(tokens, 3) for number, tokens in list(everything.items())[:8]}
                )
        return Step(tokens={0: 1}) if not view.running else Step()

    def served(self, tenant: str, prompt_tokens: int, output_tokens: int) -> None:
        pass


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("over budget", "33"),
        ("unknown", "is not there"),
        ("more than there is", "5 are missing"),
        ("nothing at all", "computes nothing"),
        ("a fraction", "0.5 tokens"),
        ("less than none", "-1 tokens"),
        ("too many", "9 requests would run"),
        ("preempts who waits", "not all run"),
        ("preempts twice", "not all run"),
        ("preempts and computes", "preempts request 0 and computes it"),
        ("memory that is not there", "more blocks than are free"),
        ("forgets a request", "computes nothing"),
    ],
)
def test_a_step_that_asks_for_what_there_is_not_is_refused(how: str, reason: str) -> None:
    engine = engine_of(Wrong(how), num_blocks=13, max_batch=8)
    engine.submit([5] * 40, 2)
    for _ in range(10):
        engine.submit([5] * 5, 2)
    with pytest.raises(RefusedStepError, match=reason):
        for _ in range(1200):
            engine.step(0.0)


def test_a_request_that_can_never_be_served_is_refused_at_once() -> None:
    engine = engine_of(scheduler("orca"), num_blocks=4)
    with pytest.raises(ValueError, match="do not fit"):
        engine.submit([5] * 15, 2)
    with pytest.raises(ValueError, match="at least one token"):
        engine.submit([5], 0)
    assert not engine.busy


def test_room_counts_what_it_has_given_out() -> None:
    engine = engine_of(scheduler("orca"), num_blocks=4, max_batch=2)
    for _ in range(3):
        engine.submit([5] * 7, 1)
    view = engine._view(0.0, {}, engine._waiting)
    room = Room(view)
    assert room.take(view.waiting[0], 7)
    assert room.blocks == 2
    assert room.take(view.waiting[1], 7)
    assert not room.fits(view.waiting[2], 1)
    assert (room.blocks, room.places, room.tokens) == (0, 0, 18)


def test_blocks_are_found_by_what_begins_alike_and_given_up_last_first() -> None:
    blocks = Blocks(4, 2, sharing=True)
    mine = [blocks.take() for _ in range(3)]
    before = -1
    for block, tokens in zip(mine, [(1, 2), (3, 4), (5, 6)], strict=True):
        blocks.fill(block, before, tokens)
        before = block
    blocks.release(mine)
    assert blocks.find([1, 2, 3, 4, 5, 6, 7]) == mine
    assert blocks.find([1, 2, 3, 4, 9, 9, 9]) == mine[:2]
    assert blocks.find([3, 4, 5, 6]) == []
    taken = [blocks.take(), blocks.take()]
    assert blocks.find([1, 2, 3, 4, 5, 6, 7]) == mine[:2]  # the end went first
    blocks.use(mine[:2])
    with pytest.raises(OutOfBlocksError):
        blocks.take()
    blocks.check([taken, mine[:2]])
    with pytest.raises(AssertionError):
        blocks.check([taken])


def test_what_follows_a_block_that_cannot_be_found_is_not_found_behind_another() -> None:
    blocks = Blocks(6, 2, sharing=True)
    first, twin, behind_twin = (blocks.take() for _ in range(3))
    blocks.fill(first, -1, (1, 2))
    blocks.fill(
        twin, -1, (1, 2)
    )  # computed in the same step as the first: that one stays the one that is found
    blocks.fill(behind_twin, twin, (3, 4))
    blocks.release([twin, behind_twin])
    other = [blocks.take() for _ in range(3)]
    assert twin in other
    blocks.fill(twin, -1, (9, 9))
    assert blocks.find([9, 9, 3, 4, 5]) == [twin]
    assert blocks.find([1, 2, 3, 4, 5]) == [first]


@pytest.mark.parametrize("seed", range(6))
def test_prompts_that_are_computed_at_once_leave_no_wrong_blocks(seed: int) -> None:
    rng = random.Random(seed)
    block_size, num_blocks = 4, 24
    engine = engine_of(
        scheduler("lpm"),
        Stepper(Model(Shape.of(MODEL), num_blocks * block_size), block_size),
        num_blocks=num_blocks,
        block_size=block_size,
        max_batch=4,
        token_budget=64,
    )
    heads = [[rng.randrange(4, 64) for _ in range(block_size)] for _ in range(3)]
    tail = [rng.randrange(4, 64) for _ in range(block_size)]
    prompts: dict[int, list[int]] = {}
    answers: dict[int, list[int]] = {}
    for head in (heads[0], *heads, *heads):
        for _ in range(2):  # twins in one step, and then others with the same second block
            prompt = [*head, *tail, rng.randrange(4, 64)]
            number = engine.submit(prompt, 3, tenant="t")
            prompts[number], answers[number] = prompt, []
        while engine.busy:
            for output in engine.step(0.0):
                answers[output.number].append(output.token)
            engine.check()
    for number, prompt in prompts.items():
        assert reference().judge(prompt, answers[number]).wrong_at is None


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b'{"prompt": []}',
        b'{"prompt": [64]}',
        b'{"prompt": [-1]}',
        b'{"prompt": ["a"]}',
        b'{"prompt": 5}',
        b'{"prompt": [5], "max_tokens": -3}',
        b'{"prompt": [5], "max_tokens": 300}',
        b'{"messages": []}',
        b'{"prompt": [5], "stream_options": 3}',
    ],
)
def test_a_request_that_is_none_is_told_why(body: bytes) -> None:
    with pytest.raises(BadRequestError, match=r"\w"):
        read_request(body, chat=False, vocabulary=64, context=256)


def test_text_is_words_of_tokens_or_bytes() -> None:
    assert read_tokens("t5 t63", 64) == [5, 63]
    assert read_tokens("t5 t64", 64) == [4 + b % 60 for b in b"t5 t64"]
    asked = read_request(
        b'{"messages": [{"role": "user", "content": "t7"}]}', chat=True, vocabulary=64, context=256
    )
    assert (asked.prompt, asked.tokens, asked.stream) == ([7], 16, False)
