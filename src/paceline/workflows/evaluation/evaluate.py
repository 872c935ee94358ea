"""Evaluates a model: questions in parallel, methods one after another on a question, every row kept as it comes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paceline.base.counting import number_of
from paceline.families.reasoning.api.requests import Finished, Method, Question, Task
from paceline.families.reasoning.core.grading.free_text import Grader
from paceline.families.reasoning.core.problems.files import TextProblem
from paceline.families.reasoning.core.questions.executor import Executor
from paceline.families.reasoning.core.questions.models import Models
from paceline.families.reasoning.core.questions.refusals import PlanError
from paceline.families.reasoning.core.questions.textual import REQUEST, Textual
from paceline.workflows.evaluation.answering import NO_LIMIT, QuestionModel, Row, Words
from paceline.workflows.evaluation.journal import GREEDY, Journal, Totals
from paceline.workflows.evaluation.methods import SCALED, Chosen
from paceline.workflows.evaluation.pace import Pace, Prices, SpentError
from paceline.workflows.evaluation.sources import CallFailedError, Source

FIRST_TRACES = 8
"""Questions whose first trace says how long traces are, before methods look into them."""
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is evaluated."""

    problems: Sequence[TextProblem]
    instruction: str | None
    """Behind each question; None takes what the kind of answer is asked by."""
    methods: Sequence[Chosen]
    samples: int
    temperature: float
    seed: int
    concurrency: int
    prices: Prices | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of it."""

    rows: tuple[Row, ...]
    """By question and method, in their order."""
    totals: Totals
    earlier: Totals
    """Of runs before this one."""
    wall_s: float
    waited_s: float
    identity: str
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def left(self) -> int:
        """Return how many rows a budget left unanswered."""
        return sum(row.status == "left" for row in self.rows)


class Evaluation:
    """Questions, methods and the reader of answers, ready to run on a source."""

    def __init__(
        self, plan: Plan, source: Source, journal: Journal, grader: Grader, pace: Pace, identity: str
    ) -> None:
        self._plan, self._source, self._journal, self._identity = plan, source, journal, identity
        self._pace = pace
        self._words, self._lock = Words(), threading.Lock()
        self._textual = Textual(self._words, plan.problems, grader, nullcontext)
        self._scripts = [one.script for one in self._textual.asked]
        self._task = Task(samples=plan.samples, temperature=plan.temperature, context=NO_LIMIT)
        self._methods: list[tuple[Chosen, Method]] = []

    def run(self, say: Say) -> list[Row]:
        """Answer every question by every method; what fails costs its own row."""
        self._methods = [(one, one.make(self._task)) for one in self._scaled()]
        places = range(len(self._plan.problems))
        rows: dict[int, list[Row]] = {}
        pool = ThreadPoolExecutor(self._plan.concurrency, thread_name_prefix="question")
        try:
            asked = {pool.submit(self._question, place): place for place in places}
            self._collect(asked, rows, say)
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
        return [row for place in places for row in rows[place]]

    def _collect(self, asked: Mapping[Future[list[Row]], int], rows: dict[int, list[Row]], say: Say) -> None:
        try:
            for done in as_completed(asked):
                rows[asked[done]] = done.result()
                self._tell(len(rows), say)
        except KeyboardInterrupt:
            # What is under way is paid already: it comes to its end and is kept, and nothing else is sent.
            self._pace.stop("interrupted")
            say("interrupted: waiting for requests under way")
            rows |= {place: done.result() for done, place in asked.items()}

    def _scaled(self) -> list[Chosen]:
        """Return the methods with what they set in tokens in proportion to the model's own traces."""
        if not any(set(SCALED.get(one.name, {})) - set(one.options) for one in self._plan.methods):
            return list(self._plan.methods)
        length = self._journal.facts.get("trace_tokens") or self._first_traces()
        return [one.scaled(length) for one in self._plan.methods]

    def _first_traces(self) -> float | None:
        found = []
        for problem in self._plan.problems[:FIRST_TRACES]:
            try:
                self._source.draw(problem.key, self.prompt(problem), self._missing(problem, [0]))
            except (CallFailedError, SpentError):
                continue  # its rows will say so
            found.append(self._journal.shelf(problem.key).traces[0].tokens)
        if not found:
            return None
        return float(self._journal.fact("trace_tokens", sum(found) / len(found)))

    def _missing(self, problem: TextProblem, indices: Sequence[int]) -> list[int]:
        return [index for index in indices if index not in self._journal.shelf(problem.key).traces]

    def prompt(self, problem: TextProblem) -> str:
        """Return the words that a question is asked by."""
        instruction = self._plan.instruction
        asked = REQUEST[problem.kind] if instruction is None else instruction
        return f"{problem.question}\n\n{asked}" if asked else problem.question

    def _question(self, place: int) -> list[Row]:
        return [self._answer(place, chosen, method) for chosen, method in self._methods]

    def _answer(self, place: int, chosen: Chosen, method: Method) -> Row:
        problem = self._plan.problems[place]
        shelf = self._journal.shelf(problem.key)
        model = QuestionModel(
            self._source, shelf, problem.key, self.prompt(problem), self._words, self._identity
        )
        executor = Executor(
            Models(model=model), self._task, self._scripts, reader=self._read, draws=self._draws, width=1
        )
        asked = Question(number=place, samples=self._plan.samples, num_parts=1)
        row: dict[str, Any] = {
            "problem": problem.key,
            "place": place,
            "method": chosen.label,
            "truth": problem.answer,
        }
        try:
            (finished,) = executor.run([asked], method)
        except (CallFailedError, PlanError) as error:
            return Row(**row, status="failed", reason=str(error))
        except SpentError as error:
            return Row(**row, status="left", reason=str(error))
        return self._row(row, finished, model)

    def _row(self, row: Mapping[str, Any], finished: Finished, model: QuestionModel) -> Row:
        ledger = finished.ledger
        with self._lock:
            right = self._textual.right(finished.number, finished.answer)
        shelf = self._journal.shelf(row["problem"])
        ended = [story for story in finished.stories if story.ended and story.index is not None]
        indices = [GREEDY if self._task.temperature > one.temperature == 0 else one.index for one in ended]
        return Row(
            **row,
            status="answered",
            answer=finished.answer,
            right=right,
            tokens=model.alone.completion_tokens,
            probe_tokens=ledger.probed,
            failed_probes=model.alone.failed_probes,
            prompt_tokens=model.alone.prompt_tokens,
            requests=model.alone.requests,
            critical_tokens=ledger.critical,
            critical_s=model.alone.critical_s,
            traces=ledger.traces,
            cut=sum(shelf.traces[i].finish == "length" for i in indices if i is not None),
        )

    def _read(self, number: int, tokens: Sequence[int]) -> str | None:
        with self._lock:  # the grader is one process, and names of answers are given one after another
            return self._textual.answer(number, tokens)

    def _draws(self, number: int, index: int) -> tuple[int, ...]:
        return (self._plan.seed, number, index)

    def _tell(self, done: int, say: Say) -> None:
        count = len(self._plan.problems)
        steps = {FIRST_TRACES, *(round(count * part / 5) for part in range(1, 6))}
        if done not in steps or done == count:
            return
        paid, before = self._journal.totals, self._journal.earlier
        tokens = paid.prompt_tokens + paid.completion_tokens - before.prompt_tokens - before.completion_tokens
        if not tokens:
            say(f"{done} of {number_of(count, 'question')}; nothing was paid in this run so far")
            return
        line = f"{done} of {number_of(count, 'question')}; {number_of(tokens, 'token', form=',')} so far in this run, "
        line += f"about {tokens * count // done:,} in all"
        prices = self._plan.prices
        if prices is not None:
            cost = prices.cost(
                paid.prompt_tokens - before.prompt_tokens, paid.completion_tokens - before.completion_tokens
            )
            line += f", {cost:.4g} in money so far, about {cost * count / done:.4g} in all"
        say(line)


MIN_ALIKE = 3
"""Questions whose traces must all be alike before a person is told."""
MOST_UNSTATED = 0.1
"""Share of answers without a known statement from which on a person is told: many are right, and the rule is weak."""


def evaluate(plan: Plan, source: Source, journal: Journal, pace: Pace, *, identity: str, say: Say) -> Outcome:
    """Evaluate.

    Raises:
        UserError: A method's option makes no sense.
    """
    begun = time.perf_counter()
    kinds = {problem.kind for problem in plan.problems}
    assert len(kinds) == 1, "a file has one kind of answers"
    with Grader(kinds.pop()) as grader:
        rows = Evaluation(plan, source, journal, grader, pace, identity).run(say)
        facts = {
            "grading_failures": grader.failures,
            "grading_timeouts": grader.timeouts,
            **grader.reading_facts(),
        }
        if grader.unstated > MOST_UNSTATED * grader.read:
            say(
                f"WARNING: {grader.unstated} of {number_of(grader.read, 'answer')} are stated by no mark and "
                "no known sentence: "
                "their last number, letter or formula was read (docs/answers.md); look at some"
            )
    alike = num_alike(plan, journal)
    facts["questions_of_equal_traces"] = alike
    if alike:
        say(
            f"WARNING: the traces of each of {number_of(alike, 'question')} are equal, letter by letter: the server "
            "seems to draw nothing and to take the likeliest token, so that votes add nothing; see its settings"
        )
    return Outcome(
        rows=tuple(rows),
        totals=journal.totals,
        earlier=journal.earlier,
        wall_s=time.perf_counter() - begun,
        waited_s=pace.waited_s,
        identity=identity,
        facts=facts,
    )


def num_alike(plan: Plan, journal: Journal) -> int:
    """Return how many questions have several drawn traces, where those of each are equal; 0 where any differ."""
    texts = [
        [one.whole for number, one in journal.shelf(problem.key).traces.items() if number != GREEDY]
        for problem in plan.problems
    ]
    several = [of_one for of_one in texts if len(of_one) > 1]
    alike = len(several) >= MIN_ALIKE and all(len(set(of_one)) == 1 for of_one in several)
    return len(several) if alike and plan.temperature > 0 else 0


def folder_of(results: Path, model: str, problems: str) -> Path:
    """Return the folder in which an evaluation is kept unless another one is named."""
    words = [
        "".join(c if c.isalnum() or c in ".-" else "-" for c in part).strip("-")
        for part in (model.rpartition("#")[2].rpartition("/")[2], Path(problems.rpartition(":")[2]).stem)
    ]
    return results.parent / "evaluations" / "_".join(word or "model" for word in words)
