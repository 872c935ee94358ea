"""Rollouts of tool calls take the time of their closed forms, and cannot call what is not there."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable

import pytest
from figures import Figures
from hypothesis import given
from hypothesis import strategies as st

from paceline.base.techniques.technique import REGISTRY
from paceline.families.reasoning.api.tool_calls import (
    Action,
    Call,
    Called,
    Join,
    Plan,
    Planned,
    Rollout,
    Think,
    Thought,
    ToolMethod,
    ToolTask,
)
from paceline.families.reasoning.core.questions.refusals import PlanError
from paceline.families.reasoning.ops.call_tools.runtime import Clock, RealClock, run_rollout
from paceline.families.reasoning.ops.call_tools.task_graph import Times, Work, draw_work
from paceline.spec import content

TIMES = Times(first_s=0.05, step_s=0.01)


def make(name: str, **options: object) -> ToolMethod:
    importlib.import_module(content.techniques("reasoning")[name].module)
    found: ToolMethod = REGISTRY["reasoning", name][1](ToolTask(num_steps=16), **options)
    return found


works = st.builds(
    lambda seed, depth, more, replanned: draw_work(
        seed, steps=depth + more, depth=depth, tool_s=0.1, replanned=replanned
    ),
    seed=st.integers(0, 10_000),
    depth=st.integers(1, 4),
    more=st.integers(0, 12),
    replanned=st.booleans(),
)


@given(work=works)
def test_each_technique_takes_the_time_of_its_closed_form(work: Work) -> None:
    compiled = run_rollout(work, TIMES, make("llm-compiler"), Clock())
    one_by_one = run_rollout(work, TIMES, make("react"), Clock())
    together = run_rollout(work, TIMES, make("react", together=True), Clock())
    assert compiled.answer == one_by_one.answer == together.answer == work.truth()
    joins = (len(work.plans) - 1) * TIMES.first_s  # an invocation of its own before each further plan
    assert compiled.elapsed_s == pytest.approx(work.critical_s(TIMES) + joins)
    assert one_by_one.elapsed_s == pytest.approx(work.sequential_s(TIMES))
    assert compiled.invocations == 2 * len(work.plans)
    assert one_by_one.invocations == len(work.steps) + 1
    assert one_by_one.most_at_once == 1
    assert together.elapsed_s <= one_by_one.elapsed_s + 1e-9
    assert {o.calls for o in (compiled, one_by_one, together)} == {len(work.steps)}


@given(work=works)
def test_the_critical_path_is_no_longer_than_any_order_and_no_shorter_than_its_longest_call(
    work: Work,
) -> None:
    assert max(work.durations_s) + 2 * TIMES.first_s < work.critical_s(TIMES)
    longest = work.sequential_s(TIMES) + len(work.plans) * 2 * TIMES.first_s
    assert work.critical_s(TIMES) <= longest + 1e-9


@given(work=works)
def test_no_technique_is_below_the_critical_path(work: Work) -> None:
    for method in (make("llm-compiler"), make("react"), make("react", together=True)):
        assert run_rollout(work, TIMES, method, Clock()).elapsed_s >= work.critical_s(TIMES) - 1e-9


@given(work=works)
def test_a_thought_names_no_step_that_cannot_be_planned_yet(work: Work) -> None:
    order: list[int] = []

    def last_first() -> Rollout:
        results: dict[int, int] = {}
        while True:
            thought = yield [Think(together=True)]
            assert isinstance(thought, Thought)
            if thought.answer is not None:
                return thought.answer
            step = thought.steps[-1]
            called = yield [Call(number=step.number, arguments=tuple(results[d] for d in step.depends))]
            assert isinstance(called, Called)
            results[called.number] = called.result
            order.append(step.number)

    assert run_rollout(work, TIMES, last_first, Clock()).answer == work.truth()
    first = {step.number for step in work.plans[0]}
    assert set(order[: len(first)]) == first


def test_a_real_clock_sleeps_what_is_left_and_never_behind() -> None:
    now_s, slept = 5.0, []
    clock = RealClock(lambda: now_s, slept.append)
    now_s = 5.25
    clock.wait(1.0)
    clock.wait(0.25)
    clock.wait(0.125)
    assert clock.now_s() == 0.25
    assert slept == [0.75]


@pytest.mark.measured
def test_real_time_passes(figure: Figures) -> None:
    work = draw_work(3, steps=5, depth=2, tool_s=0.03, replanned=False)
    times = Times(first_s=0.02, step_s=0.005)
    clock = RealClock(time.perf_counter, time.sleep)
    rollouts = [run_rollout(work, times, make("llm-compiler"), clock) for _ in range(3)]
    assert all(work.critical_s(times) <= found.elapsed_s for found in rollouts)
    # others may have waited for a core
    over = min(found.elapsed_s for found in rollouts) / work.critical_s(times)
    figure("the shortest rollout over its critical path", over, unit="ratio", most=3)
    assert {found.answer for found in rollouts} == {work.truth()}


def test_a_result_depends_on_every_argument_and_every_step() -> None:
    work = draw_work(5, steps=8, depth=2, tool_s=0.1, replanned=False)
    last = work.steps[-1]
    right = [7 for _ in last.depends]
    assert work.result(last.number, right) != work.result(last.number, [8, *right[1:]])
    results = {step.number: 1 for step in work.steps}
    for step in work.steps:
        assert work.answer(results) != work.answer(results | {step.number: 2})


def asks(*rounds: list[object], answer: int | None = None) -> ToolMethod:
    def rollout() -> Rollout:
        for asked in rounds:  # noqa: UP028 - events are sent, and a tuple takes none
            yield asked  # type: ignore[misc]  # some are no actions
        return answer

    return rollout


def ends_with_another_answer() -> Rollout:
    event = yield [Think(together=True)]
    assert isinstance(event, Thought)
    return 4711


def calls_with_wrong_arguments() -> Rollout:
    first = yield [Plan()]
    assert isinstance(first, Planned)
    while True:
        event = yield []
        if isinstance(event, Planned) and event.step.depends:
            yield [Call(number=event.step.number, arguments=(1,) * len(event.step.depends))]


def goes_on_for_ever() -> Rollout:
    event = yield [Think()]
    assert isinstance(event, Thought)
    (step,) = event.steps
    called = yield [Call(number=step.number, arguments=())]
    assert isinstance(called, Called)
    while True:
        yield [Think()]


@pytest.mark.parametrize(
    ("method", "reason"),
    [
        (asks([Call(number=0, arguments=())]), "has not been named"),
        (asks([]), "waits for nothing"),
        (asks([Plan(), Plan()]), "nothing left to plan"),
        (asks([Plan()], [], [], [], [Join()], []), "waits for nothing"),
        (asks(["call it"]), "str is not an action"),
        (asks([Think()], [Call(number=0, arguments=()), Call(number=0, arguments=())]), "called before"),
        (asks([Think()], [Call(number=0, arguments=()), Think()]), "needs the results"),
        (asks([Think()], [Call(number=0, arguments=()), Join()]), "needs the results"),
        (ends_with_another_answer, "never answered '4711'"),
        (calls_with_wrong_arguments, "are not the results of"),
        (goes_on_for_ever, "no answer after"),
    ],
)
def test_what_cannot_be_is_refused(method: Callable[[], Rollout], reason: str) -> None:
    work = draw_work(1, steps=3, depth=2, tool_s=0.1, replanned=False)
    with pytest.raises(PlanError, match=reason):
        run_rollout(work, TIMES, method, Clock())


def test_another_plan_needs_the_results_of_the_one_before() -> None:
    work = draw_work(1, steps=4, depth=2, tool_s=0.1, replanned=True)
    assert len(work.plans) == 2
    with pytest.raises(PlanError, match="needs all results"):
        run_rollout(work, TIMES, asks([Plan(), Plan()]), Clock())


def test_a_question_of_one_call_and_one_of_a_chain() -> None:
    for depth in (1, 6):
        work = draw_work(2, steps=depth, depth=depth, tool_s=0.1, replanned=False)
        found = run_rollout(work, TIMES, make("llm-compiler"), Clock())
        assert (found.most_at_once, found.invocations, found.answer) == (1, 2, work.truth())


def test_without_an_answer_none_is_given() -> None:
    work = draw_work(1, steps=3, depth=2, tool_s=0.1, replanned=False)
    asked: list[Action] = [Think()]

    def gives_up() -> Rollout:
        yield asked
        return None

    assert run_rollout(work, TIMES, gives_up, Clock()).answer is None
