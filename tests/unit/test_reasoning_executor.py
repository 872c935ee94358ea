"""What techniques ask for is counted from outside, and asked for again on what was recorded."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Sequence

import pytest
from scripted_model import ANSWER, CONCLUSION, END, PART_END, PARTS, STEP_END, ScriptedModel, read

from paceline.base.techniques.technique import REGISTRY
from paceline.families.reasoning.api import votes
from paceline.families.reasoning.api.requests import (
    Branch,
    Compare,
    Drop,
    Extend,
    Finished,
    Fork,
    Join,
    Merge,
    Method,
    OptionError,
    Plan,
    Probe,
    Question,
    Reply,
    Request,
    Review,
    Sample,
    Share,
    Task,
)
from paceline.families.reasoning.core.language import Continuation, Draw, LanguageModel
from paceline.families.reasoning.core.questions.executor import MOST_WAITING, Executor
from paceline.families.reasoning.core.questions.models import Models
from paceline.families.reasoning.core.questions.refusals import PlanError
from paceline.families.reasoning.core.questions.state import NO_TRACE, Script
from paceline.families.reasoning.core.recordings.archive import Archive, Recording
from paceline.families.reasoning.core.recordings.replay import MissingTraceError, Replay
from paceline.spec import content

PROMPT = (7, 7, 7)


class Alike:
    """Judges traces by their first tokens."""

    def probability(self, prompt: Sequence[int], one: Sequence[int], other: Sequence[int]) -> float:
        return 0.9 if one[0] % 2 == other[0] % 2 else 0.1


def run(
    method: Method,
    model: LanguageModel,
    *,
    samples: int = 6,
    count: int = 5,
    width: int = 8,
    temperature: float = 0.8,
    order: Callable[[int, int], int] = lambda number, index: index,
    partner: LanguageModel | None = None,
) -> list[Finished]:
    task = Task(samples=samples, temperature=temperature, context=200)
    questions = [Question(number=n, samples=samples, num_parts=n % 3 + 1) for n in range(count)]
    scripts = [
        Script(
            prompt=(*PROMPT, n),
            openings=tuple((PARTS[i],) for i in range(n % 3 + 1)),
            part_end=(PART_END,),
            step_end=(STEP_END,),
            conclusion=(CONCLUSION,),
            probe=(ANSWER,),
            probe_tokens=2,
        )
        for n in range(count)
    ]
    executor = Executor(
        Models(
            model=model,
            partner=partner or ScriptedModel(answers=(3,), identity="partner"),
            partner_weight=2.0,
            judge=Alike(),
        ),
        task,
        scripts,
        reader=lambda number, tokens: read(tokens),
        draws=lambda number, index: (1, number, order(number, index)),
        width=width,
    )
    return executor.run(questions, method)


def samples_of(one: Finished) -> dict[int, tuple[int, ...]]:
    """Return the tokens of a question's samples by index."""
    return {story.index: story.tokens for story in one.stories if story.index is not None}


def make(name: str, *, samples: int = 6, temperature: float = 0.8, **options: object) -> Method:
    source = content.techniques("reasoning")[name]
    importlib.import_module(source.module)
    found: Method = REGISTRY["reasoning", name][1](
        Task(samples=samples, temperature=temperature, context=200), **options
    )
    return found


TECHNIQUES = sorted(
    name for name, source in content.techniques("reasoning").items() if "solve" in source.info.implements
)


def length(model: ScriptedModel, key: int, index: int) -> int:
    """Return how long a trace is, from the script alone."""
    return len(model.script((*PROMPT, key), Draw(key=(1, key, index), temperature=0.8)))


def test_a_vote_costs_all_traces_and_waits_for_the_longest() -> None:
    model = ScriptedModel()
    for one in run(make("self-consistency"), model):
        lengths = [length(model, one.number, i) for i in range(6)]
        assert (one.ledger.decoded, one.ledger.critical) == (sum(lengths), max(lengths))
        assert (one.ledger.probed, one.ledger.rounds, one.ledger.traces) == (0, 1, 6)
        assert (one.ledger.peak_traces, one.ledger.peak_cache) == (6, 4 + sum(lengths))
        assert one.answer == votes.majority(read(samples_of(one)[i]) for i in range(6))


def test_one_trace_after_another_waits_for_all_of_them() -> None:
    model = ScriptedModel()
    for one in run(make("adaptive-consistency"), model):
        lengths = [length(model, one.number, i) for i in range(one.ledger.traces)]
        assert one.ledger.decoded == one.ledger.critical == sum(lengths)
        assert one.ledger.peak_traces == 1
        assert one.ledger.peak_cache == 4 + max(lengths)


def test_windows_stop_at_the_first_that_agrees() -> None:
    agreeing = ScriptedModel(answers=(3,))
    assert {one.ledger.traces for one in run(make("esc"), agreeing)} == {4}
    torn = ScriptedModel(answers=range(10))
    assert {one.ledger.traces for one in run(make("esc"), torn)} == {6}
    silent = ScriptedModel(silent=1.0)
    found = run(make("esc"), silent)
    assert {(one.answer, one.ledger.traces) for one in found} == {(None, 6)}


def test_probes_are_paid_for_and_forced_tokens_are_not_decoded() -> None:
    model = ScriptedModel(answers=(3,), lengths=(60, 60))
    for one in run(make("dynasor", chunk=16, agreeing=2, least_votes=3, threshold=0.7), model):
        # two chunks and two probes of all six traces settle every trace
        assert one.ledger.decoded == 6 * 2 * 16
        assert one.ledger.probed == 6 * 2 * 2
        assert one.ledger.forced == 6 * 2
        assert one.ledger.critical == 2 * (16 + 2)
        assert one.ledger.total == one.ledger.decoded + one.ledger.probed
        assert (one.answer, one.ledger.stopped) == ("3", 6)
    assert not model.open, "every trace and probe was closed"


def test_certaindex_ends_a_question_once_votes_agree() -> None:
    model = ScriptedModel(answers=(3,), lengths=(4, 90))
    for one in run(make("dynasor", chunk=16, agreeing=0, least_votes=3, threshold=0.7), model):
        lengths = sorted(length(model, one.number, i) for i in range(6))
        chunks = -(-lengths[2] // 16)  # in which the third trace ends
        assert one.ledger.decoded == sum(min(n, 16 * chunks) for n in lengths)
        assert one.ledger.probed == 0
        assert one.ledger.stopped == sum(n > 16 * chunks for n in lengths)


def test_unsure_traces_are_given_up_and_what_they_cost_stays() -> None:
    torn = ScriptedModel(answers=range(10), lengths=(30, 60))
    strict = run(make("deepconf", warmup=3, keep=0.0, chunk=8), torn)
    lenient = run(make("deepconf", warmup=3, keep=1.0, chunk=8), torn)
    for one, other in zip(strict, lenient, strict=True):
        whole = [length(torn, one.number, i) for i in range(6)]
        assert sum(whole[:3]) + 3 * 8 <= one.ledger.decoded < sum(whole)
        assert one.ledger.decoded <= other.ledger.decoded
    assert sum(o.ledger.stopped for o in strict) > sum(o.ledger.stopped for o in lenient)


def test_threads_are_written_at_once_and_joined_without_being_decoded_again() -> None:
    from paceline.families.reasoning.core.language import Draw

    model = ScriptedModel()
    for one in run(make("thread-weaver"), model):
        prompt, key = (*PROMPT, one.number), (1, one.number, 0)
        parts = []
        for i in range(one.number % 3 + 1):
            script = model.script((*prompt, PARTS[i]), Draw(key=(*key, 0, i), temperature=0.8))
            parts.append([PARTS[i], *script[: script.index(PART_END) + 1]])
        joined = [*prompt, *(t for part in parts for t in part)]
        rest = model.script(tuple(joined), Draw(key=(*key, 0, len(parts)), temperature=0.8))
        decoded = [len(part) - 1 for part in parts]
        assert one.answer == read(rest)
        assert one.ledger.decoded == sum(decoded) + len(rest)
        assert one.ledger.critical == max(decoded) + len(rest)
        assert one.ledger.forced == len(parts) + sum(map(len, parts))
        assert one.ledger.forks == len(parts) + 1
        assert one.stories[-1].tokens == (*joined[len(prompt) :], *rest)
        # while it is joined, threads have been given up: the parts are held once
        assert one.ledger.peak_cache == len(joined) + len(rest)
        assert one.ledger.stopped == 0


def test_a_join_for_which_there_is_no_room_has_ended() -> None:
    seen: list[Reply] = []

    def solve(question: Question) -> Plan:
        (root,) = yield [Sample(index=0)]
        seen.extend((yield [Probe(trace=root.trace)]))
        seen.extend((yield [Fork(trace=root.trace, part=0)]))
        return None

    (one,) = run(solve, ScriptedModel(lengths=(193, 193)), count=1)
    assert len(PROMPT) + 1 + len(one.stories[0].tokens) == 200, "the context is full"
    assert [(r.trace, r.ended, r.tokens) for r in seen] == [(0, True, ()), (NO_TRACE, True, ())]
    assert one.ledger.probed == one.ledger.forks == 0


def test_steps_end_where_the_script_says_and_copies_draw_their_own_tokens() -> None:
    told: dict[int, tuple[Reply, ...]] = {}

    def stepping(question: Question) -> Plan:
        (whole,) = yield [Sample(index=0, step=True)]
        first, second = yield [Branch(trace=whole.trace), Branch(trace=whole.trace)]
        (rest,) = yield [Branch(trace=first.trace, step=False)]
        told[question.number] = (whole, first, second, rest)
        return rest.answer

    model = ScriptedModel(lengths=(60, 60))
    for one in run(stepping, model):
        whole, first, second, rest = told[one.number]
        assert all(r.ended or r.tokens.index(STEP_END) == len(r.tokens) - 1 for r in (whole, first, second))
        assert first.tokens != second.tokens
        assert one.ledger.decoded == sum(len(r.tokens) for r in (whole, first, second, rest))
        assert one.ledger.critical == sum(
            (len(whole.tokens), max(len(first.tokens), len(second.tokens)), len(rest.tokens))
        )
        assert (one.ledger.forks, one.ledger.forced) == (3, 0)
        paths = {s.tokens for s in one.stories}
        assert (*whole.tokens, *first.tokens, *rest.tokens) in paths
        # four prompt tokens, and what the three open paths hold, the first step once
        kept = 4 + len(whole.tokens) + len(first.tokens) + len(second.tokens) + len(rest.tokens)
        assert one.ledger.peak_cache == kept
        assert one.ledger.mean_cache < kept
    assert not model.open


def test_a_partner_reads_what_it_has_not_read_and_counts_by_its_weight() -> None:
    def handing(question: Question) -> Plan:
        (small,) = yield [Sample(index=0, tokens=5)]
        (large,) = yield [Branch(trace=small.trace, partner=True, tokens=4, step=False)]
        (again,) = yield [Branch(trace=large.trace, tokens=3, step=False)]
        (last,) = yield [Branch(trace=again.trace, partner=True, step=False)]
        return last.answer

    model, partner = ScriptedModel(lengths=(20, 20)), ScriptedModel(lengths=(20, 20), identity="partner")
    for one in run(handing, model, partner=partner):
        ledger = one.ledger
        last = ledger.decoded - 5 - 4 - 3
        # the partner reads the prompt and five tokens; the model four; the partner the three that are new to it
        assert (ledger.forced, ledger.forced_by_partner) == (4 + 5 + 4 + 3, 4 + 5 + 3)
        assert ledger.by_partner == 4 + last
        assert ledger.work(2.0) == 5 + 3 + 2 * (4 + last)
        assert ledger.critical == ledger.decoded
        assert ledger.critical_work == ledger.work(2.0)
        # both have read the prompt, and all of the text that each needed
        assert ledger.peak_cache == 2 * 4 + (5 + 4 + 3) + (5 + 4 + 3 + last)
    assert not model.open and not partner.open


def test_reviews_and_comparisons_read_each_token_once() -> None:
    scores: dict[int, tuple[float | None, ...]] = {}

    def asking(question: Question) -> Plan:
        first, second = yield [Sample(index=0, tokens=6), Sample(index=1, tokens=7)]
        (reviewed,) = yield [Review(trace=first.trace)]
        yield [Extend(trace=second.trace, tokens=2)]
        replies = yield [
            Review(trace=second.trace),
            Compare(trace=first.trace, other=second.trace),
            Compare(trace=second.trace, other=first.trace),
        ]
        scores[question.number] = (reviewed.score, *(r.score for r in replies))
        return None

    for one in run(asking, ScriptedModel(lengths=(20, 20))):
        assert one.ledger.reviewed == 6 + 2
        assert one.ledger.judged == 6 + 9
        assert one.ledger.total == 15 + 8 + 15
        assert one.ledger.critical == 7 + 2
        first, second = (samples_of(one)[i] for i in (0, 1))
        alike = 0.9 if first[0] % 2 == second[0] % 2 else 0.1
        belief = pytest.approx(math.exp(-1))
        assert scores[one.number] == (belief, belief, alike, alike)
        assert [c.indices for c in one.comparisons] == [(0, 1), (1, 0)]


def test_merged_parts_are_not_read_again() -> None:
    model = ScriptedModel()
    found = run(make("multiverse"), model)
    joined = run(make("thread-weaver"), model)
    for one, other in zip(found, joined, strict=True):
        parts = one.number % 3 + 1
        if parts == 1:
            assert one.ledger.merged == one.ledger.forced == 0
            continue
        threads = [s for s in one.stories if s.num_forced == 1]
        written = sum(len(s.tokens) for s in threads)
        assert one.ledger.merged == written
        assert one.ledger.forced == parts + 1  # their openings, and the conclusion
        assert other.ledger.forced == parts + written
        last = one.ledger.decoded - (written - parts)
        assert one.ledger.critical == max(len(s.tokens) - 1 for s in threads) + last
    assert not model.open


def test_workers_share_one_cache_and_wait_for_the_longest() -> None:
    model = ScriptedModel()
    for one in run(make("hogwild"), model):
        workers = [s for s in one.stories if s.num_forced]
        assert len(workers) == (0 if one.number % 3 == 0 else 2)
        if workers:
            lengths = [len(s.tokens) for s in workers]
            assert one.ledger.forced == 2
            assert one.ledger.decoded == sum(lengths) - 2
            assert one.ledger.critical == max(lengths) - 1
            assert one.ledger.peak_cache == 4 + sum(lengths)
    assert not model.open


def test_what_a_fork_stands_on_stays_in_the_cache() -> None:
    def solve(question: Question) -> Plan:
        (root,) = yield [Sample(index=0, tokens=12)]
        (fork,) = yield [Fork(trace=root.trace, part=0)]
        yield [Drop(trace=root.trace)]
        yield [Extend(trace=fork.trace, tokens=1)]
        return None

    (one,) = run(solve, ScriptedModel(lengths=(30, 60)), count=1)
    root, fork = one.stories
    assert one.ledger.peak_cache == len(PROMPT) + 1 + len(fork.tokens), (
        "the parent's tokens are the fork's as well"
    )
    assert fork.tokens[:12] == root.tokens


def test_an_answer_is_read_across_a_copy() -> None:
    def solve(question: Question) -> Plan:
        (root,) = yield [Sample(index=0, tokens=5)]
        (probed,) = yield [Probe(trace=root.trace)]
        assert probed.answer == str(probed.tokens[0])
        return probed.answer

    (one,) = run(solve, ScriptedModel(lengths=(30, 60)), count=1)
    assert one.answer is not None


def test_numbers_of_traces_are_the_questions_own() -> None:
    seen: list[int] = []

    def solve(question: Question) -> Plan:
        replies = yield [Sample(index=i) for i in (3, 1)]
        seen.extend(reply.trace for reply in replies)
        return None

    model = ScriptedModel()
    run(solve, model)
    run(solve, model)
    assert seen == [0, 1] * 10


def test_a_warm_up_that_agrees_suffices() -> None:
    assert {o.ledger.traces for o in run(make("deepconf", warmup=3), ScriptedModel(answers=(3,)))} == {3}


def test_the_likeliest_trace_ignores_the_draw() -> None:
    model = ScriptedModel()
    found = run(make("greedy"), model)
    assert all(one.ledger.traces == 1 and one.ledger.decoded == one.ledger.critical for one in found)
    assert [o.answer for o in found] == [
        o.answer for o in run(make("greedy"), model, order=lambda k, i: i + 9)
    ]


@pytest.mark.parametrize("technique", TECHNIQUES)
@pytest.mark.parametrize("width", [1, 1000])
def test_what_else_is_answered_at_the_same_time_changes_nothing(technique: str, width: int) -> None:
    assert run(make(technique), ScriptedModel(), width=width) == run(make(technique), ScriptedModel())


@pytest.mark.parametrize("technique", TECHNIQUES)
def test_a_replay_is_the_online_run_again(technique: str) -> None:
    archive, other = Archive("scripted"), Archive("partner")
    model, partner = ScriptedModel(silent=0.2), ScriptedModel(answers=(3,), identity="partner")
    online = run(make(technique), Recording(model, archive), partner=Recording(partner, other))
    assert not model.open and not partner.open
    replayed = run(make(technique), Replay(archive, context=200), partner=Replay(other, context=200))
    assert replayed == online
    ledgers = [o.ledger for o in online]
    assert archive.num_tokens == sum(x.decoded + x.probed - x.by_partner for x in ledgers)
    assert other.num_tokens == sum(x.by_partner for x in ledgers)
    if other.scores:
        with pytest.raises(MissingTraceError, match="steps were not recorded"):
            run(
                make(technique), Replay(archive, context=200), partner=Replay(Archive("partner"), context=200)
            )


@pytest.mark.parametrize("technique", TECHNIQUES)
def test_replays_in_another_order_equal_online_runs_in_that_order(technique: str) -> None:
    def order(key: int, index: int) -> int:
        return (5 * index + key) % 6

    archive = Archive("scripted")
    run(make("self-consistency"), Recording(ScriptedModel(), archive))
    replay = Replay(archive, ScriptedModel(), context=200)
    assert run(make(technique), replay, order=order) == run(make(technique), ScriptedModel(), order=order)


@pytest.mark.parametrize("technique", TECHNIQUES)
@pytest.mark.parametrize(
    "model",
    [ScriptedModel(silent=1.0), ScriptedModel(answers=(3,)), ScriptedModel(lengths=(1, 1)), ScriptedModel()],
    ids=["nothing can be read", "all agree", "very short", "mixed"],
)
@pytest.mark.parametrize("samples", [1, 2, 6])
def test_techniques_live_at_the_edges(technique: str, model: ScriptedModel, samples: int) -> None:
    for one in run(make(technique, samples=samples), model, samples=samples, count=3):
        assert len(samples_of(one)) <= samples
        if model.silent < 1.0:
            assert one.answer is not None
        elif not one.ledger.probed and not one.ledger.by_partner:
            assert one.answer is None
        assert one.ledger.critical <= one.ledger.total
    assert not model.open


def test_all_cost_is_counted_when_a_trace_is_given_up() -> None:
    def quitter(question: Question) -> Plan:
        first, second = yield [Sample(index=0, tokens=3), Sample(index=1, tokens=2)]
        yield [Drop(trace=first.trace)]
        (reply,) = yield [Extend(trace=second.trace)]
        return reply.answer

    model = ScriptedModel(lengths=(10, 20))
    for one in run(quitter, model):
        rest = length(model, one.number, 1) - 2
        assert one.ledger.decoded == 3 + 2 + rest
        assert one.ledger.critical == 3 + rest
        assert one.ledger.peak_traces == 2
        assert one.ledger.stopped == 1
    assert not model.open


class Sneaky(int):
    """A number with methods of its own."""


class Loud(Sample):
    """A request with methods of its own."""


def ask(*rounds: list[object]) -> Method:
    """Return a method that yields these rounds, whatever comes back."""

    def solve(question: Question) -> Plan:
        for asked in rounds:  # noqa: UP028 - replies are sent, and a tuple takes none
            yield asked  # type: ignore[misc]  # some are no requests
        return None

    return solve


@pytest.mark.parametrize(
    ("method", "reason"),
    [
        (ask([Sample(index=6)]), "outside of the 6"),
        (ask([Sample(index=0), Sample(index=0)]), "begun before"),
        (ask([Sample(index=0)], [Extend(trace=0)]), "has ended"),
        (ask([Extend(trace=77)]), "not one of this question's"),
        (ask([Sample(index=0, tokens=-1)]), "asked for -1 tokens"),
        (ask([Sample(index=0, tokens=2)], [Drop(trace=0)], [Extend(trace=0)]), "has been dropped"),
        (ask([Sample(index=0, tokens=2)], [Extend(trace=0, tokens=1), Extend(trace=0)]), "twice"),
        (
            ask([Sample(index=0, tokens=2)], [Extend(trace=0, tokens=1), Drop(trace=0)]),
            "dropped in the round",
        ),
        (ask([Sample(index=0, tokens=2)], [Extend(trace=0), Probe(trace=0)]), "copied in the round"),
        (ask([Sample(index=0, tokens=0)], [Fork(trace=0, part=1)]), "outside of the 1"),
        (ask([Sample(index=0, tokens=0)], [Fork(trace=0, part=0)], [Fork(trace=0, part=0)]), "begun before"),
        (ask([Sample(index=0, tokens=0)], [Join(trace=0, forks=(0,))]), "no fork of trace 0"),
        (
            ask([Sample(index=0, tokens=0)], [Join(trace=0, forks=())]),
            "0 forks are joined to trace 0; 1 different ones at least",
        ),
        (
            ask([Sample(index=0, tokens=0)], [Fork(trace=0, part=0), Join(trace=0, forks=(1,))]),
            "joined in the round",
        ),
        (
            ask(
                [Sample(index=0, tokens=0)],
                [Fork(trace=0, part=0)],
                [Join(trace=0, forks=(1,))],
                [Join(trace=0, forks=(1,))],
            ),
            "joined before",
        ),
        (ask([Sample(index=0)], [Branch(trace=0)]), "has ended and cannot go on"),
        (ask([Sample(index=0, tokens=0)], [Review(trace=0)]), "no step that could be reviewed"),
        (ask([Sample(index=0, partner=True, tokens=1)], [Probe(trace=0)]), "the partner's"),
        (
            ask([Sample(index=0, tokens=0)], [Fork(trace=0, part=0)], [Merge(trace=0, forks=(1,))]),
            "2 different ones at least",
        ),
        (
            ask([Sample(index=0, tokens=0)], [Fork(trace=0, part=0)], [Merge(trace=0, forks=(1, 1))]),
            "2 different ones at least",
        ),
        (ask([Sample(index=0, tokens=0)], [Share(trace=0, part=0), Share(trace=0, part=0)]), "each once"),
        (ask([Sample(index=0, tokens=0)], [Share(trace=0, part=3)]), "of the 1 that a question has"),
        (ask([Sample(index=0, tokens=0)], [Share(trace=0, part=0)], [Probe(trace=1)]), "sees others"),
        (
            ask([Sample(index=0, tokens=0)], [Share(trace=0, part=0)], [Share(trace=0, part=0)]),
            "joined or shared before",
        ),
        (ask([Sample(index=0)], [Probe(trace=0)]), "has ended cannot go on"),
        (ask([Sample(index=0)], [Fork(trace=0, part=0)]), "has ended cannot go on"),
        (ask([Sample(index=0, tokens=2)], [Compare(trace=0, other=0)]), "neither of which"),
        (ask([Sample(index=Sneaky(0))]), "index of Sample is no plain number: Sneaky"),
        (ask([Loud(index=0)]), "Loud is not a request"),
        (
            ask(
                [Sample(index=0, tokens=2)],
                [Branch(trace=0, partner=True, tokens=2), Branch(trace=0, tokens=2)],
                [Join(trace=0, forks=(1,))],
            ),
            "trace 1 is no fork of trace 0",
        ),
        (ask(["a string"]), "str is not a request"),
        (ask(*([] for _ in range(10_001))), "no answer after"),
    ],
)
def test_what_a_question_does_not_offer_is_refused(method: Method, reason: str) -> None:
    with pytest.raises(PlanError, match=reason):
        run(method, ScriptedModel(lengths=(10, 20)), count=1)


def test_merges_need_what_forks_left_and_are_not_merged_again() -> None:
    def merging(*after: Request, drop: bool = False) -> Method:
        def solve(question: Question) -> Plan:
            yield [Sample(index=0, tokens=0)]
            forks = yield [Fork(trace=0, part=0), Fork(trace=0, part=1)]
            if drop:
                yield [Drop(trace=forks[0].trace)]
            yield [Merge(trace=0, forks=(1, 2))]
            yield after
            return None

        return solve

    questions = {"count": 2, "samples": 2}
    with pytest.raises(PlanError, match="its cache is gone"):
        run(only_second(merging(drop=True)), ScriptedModel(), **questions)
    with pytest.raises(PlanError, match="joined before"):
        run(only_second(merging(Merge(trace=0, forks=(1, 2)))), ScriptedModel(), **questions)


def only_second(method: Method) -> Method:
    """Leave out the first question, which has one part."""

    def solve(question: Question) -> Plan:
        if question.number == 0:
            return None
        return (yield from method(question))

    return solve


def test_without_a_partner_or_a_judge_their_requests_are_refused() -> None:
    models = Models(model=ScriptedModel())
    task = Task(samples=2, temperature=0.8, context=200)
    script = Script(
        prompt=PROMPT, openings=(), part_end=(), step_end=(), conclusion=(), probe=(ANSWER,), probe_tokens=2
    )
    for asked, reason in (
        ([Sample(index=1, partner=True)], "no partner: set one"),
        ([Review(trace=0)], "no partner: set one"),
        ([Compare(trace=0, other=0)], "no judge"),
    ):
        executor = Executor(
            models,
            task,
            [script],
            reader=lambda number, tokens: read(tokens),
            draws=lambda n, i: (n, i),
            width=4,
        )
        with pytest.raises(PlanError, match=reason):
            executor.run(
                [Question(number=0, samples=2, num_parts=1)], ask([Sample(index=0, tokens=2)], asked)
            )


@pytest.mark.parametrize("method", [ask([Sample(index=0), Sample(index=99)]), ask([Sample(index=0)], ["?"])])
def test_a_failing_technique_leaves_nothing_open(method: Method) -> None:
    model = ScriptedModel(lengths=(10, 20))
    with pytest.raises(PlanError):
        run(method, model)
    assert not model.open


def test_an_answer_that_no_trace_gave_is_refused() -> None:
    def knows(question: Question) -> Plan:
        yield [Sample(index=0)]
        return "17"

    def odd(question: Question) -> Plan:
        yield [Sample(index=0)]
        return 3  # type: ignore[return-value]

    class Agreeable(str):
        """Equals every truth."""

        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = str.__hash__

    def agreeable(question: Question) -> Plan:
        (reply,) = yield [Sample(index=0)]
        return Agreeable(reply.answer)

    with pytest.raises(PlanError, match="none of its traces answers '17'"):
        run(knows, ScriptedModel(), count=1)
    with pytest.raises(PlanError, match="Agreeable, and not text"):
        run(agreeable, ScriptedModel(), count=1)
    with pytest.raises(PlanError, match="int, and not text"):
        run(odd, ScriptedModel(), count=1)


def test_a_replay_without_a_model_refuses_what_was_not_recorded() -> None:
    archive = Archive("scripted")
    run(make("esc"), Recording(ScriptedModel(answers=(3,)), archive))
    with pytest.raises(MissingTraceError):
        run(make("self-consistency"), Replay(archive, context=200))


@pytest.mark.parametrize(
    ("technique", "options", "reason"),
    [
        ("esc", {"window": 0}, "window is 0; 1 or more"),
        ("deepconf", {"warmup": 0}, "warmup is 0"),
        ("deepconf", {"window": 0}, "window is 0"),
        ("deepconf", {"keep": 1.5}, "keep is 1.5; 0 to 1"),
        ("dynasor", {"agreeing": -1}, "agreeing is -1"),
        ("self-consistency", {"traces": 7}, "traces is 7; 1 to 6"),
        ("thread-weaver", {"traces": 0}, "traces is 0; 1 to 6"),
        ("adaptive-consistency", {"threshold": 2}, "threshold is 2"),
    ],
)
def test_an_option_that_makes_no_sense_is_refused(
    technique: str, options: dict[str, float], reason: str
) -> None:
    with pytest.raises(OptionError, match=reason):
        make(technique, **options)


def test_equal_draws_that_give_other_tokens_are_noticed() -> None:
    archive = Archive("scripted")
    run(make("self-consistency"), Recording(ScriptedModel(), archive))
    with pytest.raises(ValueError, match="of draw"):
        run(make("self-consistency"), Recording(ScriptedModel(lengths=(5, 12)), archive))


def test_what_a_technique_does_to_its_question_stays_with_it() -> None:
    def meddling(question: Question) -> Plan:
        object.__setattr__(question, "number", 0)
        (reply,) = yield [Sample(index=0)]
        return reply.answer

    def honest(question: Question) -> Plan:
        (reply,) = yield [Sample(index=0)]
        return reply.answer

    assert run(meddling, ScriptedModel()) == run(honest, ScriptedModel())


def test_a_replay_opens_all_copies_before_their_traces_go_on() -> None:
    def copying(question: Question) -> Plan:
        (opened,) = yield [Sample(index=0, tokens=2, greedy=True)]
        (branch,) = yield [Branch(trace=opened.trace, tokens=2, step=False)]
        yield [Probe(trace=branch.trace), Extend(trace=branch.trace, tokens=3)]
        yield [Branch(trace=opened.trace, tokens=2), Extend(trace=opened.trace, tokens=3)]
        return None

    model = ScriptedModel(lengths=(30, 30))
    archive = Archive("scripted")
    assert run(copying, Replay(archive, model, context=200)) == run(copying, ScriptedModel(lengths=(30, 30)))
    assert not model.open


class Reading(ScriptedModel):
    """Counts the tokens that it has to read when traces are opened."""

    num_read = 0

    def begin(self, prompt: Sequence[int], draw: Draw) -> int:
        self.num_read += len(prompt)
        return super().begin(prompt, draw)

    def fork(self, trace: int, forced: Sequence[int], draw: Draw) -> int:
        self.num_read -= len(self.present(trace))  # which `begin` counts
        return super().fork(trace, forced, draw)


def test_a_replayed_tree_reads_no_step_again_though_parents_are_dropped() -> None:
    def tree(question: Question) -> Plan:
        replies = yield [Sample(index=i, tokens=2) for i in range(2)]
        for _ in range(4):
            first, second = (reply.trace for reply in replies)
            replies = yield [
                Branch(trace=first, tokens=2),
                Branch(trace=second, tokens=2),
                Drop(trace=first),
                Drop(trace=second),
            ]
            replies = replies[:2]
        return None

    model = Reading(lengths=(30, 30))
    found = run(tree, Replay(Archive("scripted"), model, context=200), count=3)
    assert found == run(tree, ScriptedModel(lengths=(30, 30)), count=3)
    assert model.num_read == 3 * 2 * len((*PROMPT, 0))
    assert not model.open


class Wavering(ScriptedModel):
    """Scores the same step a little differently every time, as batches of other sizes do in float32."""

    num_scored = 0

    def score(self, asked: Sequence[Continuation]) -> list[list[float]]:
        found = []
        for _, continuation in asked:
            self.num_scored += 1
            found.append([-1.0 - self.num_scored * 1e-6 for _ in continuation])
        return found


def test_a_step_has_one_score_however_often_it_is_reviewed() -> None:
    told: dict[int, list[float | None]] = {}

    def twice(question: Question) -> Plan:
        (opened,) = yield [Sample(index=0, step=True)]
        for _ in range(2):
            (review,) = yield [Review(trace=opened.trace)]
            told.setdefault(question.number, []).append(review.score)
        return None

    archives = Archive("scripted"), Archive("partner")
    models = ScriptedModel(), Wavering(identity="partner")
    online = run(twice, Recording(models[0], archives[0]), partner=Recording(models[1], archives[1]), count=3)
    assert models[1].num_scored == 3
    assert len({first for first, _ in told.values()}) == 3
    replays = [Replay(archive, context=200) for archive in archives]
    assert run(twice, replays[0], partner=replays[1], count=3) == online
    assert all(len(scores) == 4 and len(set(scores)) == 1 for scores in told.values())


def test_steps_of_many_questions_are_reviewed_together_while_others_decode() -> None:
    sizes: list[int] = []

    class Counting(ScriptedModel):
        def score(self, asked: Sequence[Continuation]) -> list[list[float]]:
            sizes.append(len(asked))
            return super().score(asked)

    run(make("rebase"), ScriptedModel(), partner=Counting(identity="partner"), count=30, width=100)
    assert max(sizes) >= MOST_WAITING
    assert sum(sizes) / len(sizes) > 6


def test_the_likeliest_trace_is_recorded_once_for_every_order() -> None:
    archive = Archive("scripted")
    online = run(make("greedy"), Recording(ScriptedModel(), archive))
    before = archive.num_tokens
    replay = Replay(archive, context=200)
    assert [f.answer for f in run(make("greedy"), replay, order=lambda k, i: i + 3)] == [
        f.answer for f in online
    ]
    assert archive.num_tokens == before


def test_at_temperature_zero_the_likeliest_trace_is_one_of_the_samples() -> None:
    archive = Archive("scripted")
    run(make("self-consistency", temperature=0.0), Recording(ScriptedModel(), archive), temperature=0.0)
    again = run(make("greedy", temperature=0.0), Replay(archive, context=200), temperature=0.0)
    assert all(samples_of(one)[0] for one in again)


def test_traces_of_one_name_are_each_decoded_as_far_as_they_ask() -> None:
    def twice(question: Question) -> Plan:
        replies = yield [Sample(index=i, tokens=n, greedy=True) for i, n in enumerate((20, 10))]
        assert [len(reply.tokens) for reply in replies] == [20, 10]
        assert replies[0].tokens[:10] == replies[1].tokens
        return None

    model = ScriptedModel(lengths=(30, 30))
    run(twice, Replay(Archive("scripted"), model, context=200))
    assert not model.open


def test_a_model_whose_draws_do_not_repeat_goes_on_behind_what_was_recorded() -> None:
    class Fickle(ScriptedModel):
        def begin(self, prompt: Sequence[int], draw: Draw) -> int:
            again = Draw(key=(*draw.key, self.polls), temperature=draw.temperature)
            return super().begin(prompt, again)

    def some(tokens: int) -> Method:
        def solve(question: Question) -> Plan:
            (reply,) = yield [Sample(index=0, greedy=True, tokens=tokens)]
            return reply.answer

        return solve

    archive = Archive("scripted")
    model = Fickle(lengths=(30, 30))
    short = run(some(8), Replay(archive, model, context=200, repeatable=False))
    long = run(some(20), Replay(archive, model, context=200, repeatable=False))
    for one, other in zip(short, long, strict=True):
        assert one.stories[0].tokens == other.stories[0].tokens[:8]
    assert not model.open


def test_an_archive_belongs_to_one_model() -> None:
    with pytest.raises(ValueError, match="traces of another"):
        Recording(ScriptedModel(), Archive("another"))


def test_replies_hold_the_models_own_figures() -> None:
    seen: list[Reply] = []

    def look(question: Question) -> Plan:
        replies = yield [Sample(index=0)]
        seen.extend(replies)
        return replies[0].answer

    run(look, ScriptedModel(), count=1)
    (reply,) = seen
    assert reply.ended
    assert reply.tokens[-1] == END
    assert reply.logprobs == tuple(-0.1 * t for t in reply.tokens)
    assert len(reply.entropies) == len(reply.tokens)
