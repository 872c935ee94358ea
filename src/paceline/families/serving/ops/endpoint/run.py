"""Measures one block of ``endpoint``: the same calls to every server, one after another, in an order that alternates.

Every launch draws other calls. Launches go forwards and backwards in turn (A B, B A, …), so that what drifts slowly
weighs on all servers alike. Nobody here knows what a server ought to answer: that each answer is whole, and has as many
tokens as were asked for and as the server counts, is what the gate holds it to, and the record says so.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import time
import traceback
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from paceline.base.counting import number_of
from paceline.base.errors import PacelineError, PrerequisiteError, UserError
from paceline.families.serving.core.client_figures import accounting, seen, settled
from paceline.families.serving.core.load.calls import Messages, Workload, prompt_text
from paceline.families.serving.core.load.findings.capacity import find_capacity, met_alone
from paceline.families.serving.core.load.findings.certificate import SAYS_NOTHING, certify
from paceline.families.serving.core.load.findings.server_metrics import changes, read_metrics
from paceline.families.serving.core.load.log.entries import Log, write_log
from paceline.families.serving.core.load.log.outcomes import Outcome, meets, outcomes_of, tokens_per_s
from paceline.families.serving.core.load.log.prompts import cached_share, shared_beginnings, told_of_prompts
from paceline.families.serving.core.load.processes import AHEAD_S, SOON_S, run_load
from paceline.families.serving.core.load.sending.client import Limits
from paceline.families.serving.core.load.words import VOCABULARY, in_words
from paceline.families.serving.core.workloads.conversation_calls import session_calls
from paceline.families.serving.core.workloads.drawn import CLOSED, draw_workload, instants_of
from paceline.families.serving.core.workloads.traced_calls import TRACED, speaks, spoken_sessions, trace_facts
from paceline.families.serving.ops.endpoint.served import NoServerError, served
from paceline.families.serving.ops.endpoint.target import Side, side_of
from paceline.worker.ranks.session import Block, Case, CaseError, Session

WARM_CONNECTIONS = 16
CALL_S = 600.0
SILENCE_S = 300.0
NUM_HASHED = 256
"""Answers of which a record keeps a digest, by which those of two servers are compared."""
GATE = "each answer is whole, and its tokens are as many as were asked for and as the server counts; not what it says"
MODEL_OF_MOCKS = "mock"


def run_block(session: Session, block: Block) -> None:
    """Measure all servers of a block and emit one ``result`` event for each."""
    if session.rank != 0:
        return
    seed = session.draw_seed("calls", block.block)
    order = list(block.cases)
    if session.launch % 2:
        order.reverse()
    for position, case in enumerate(order):
        session.begin(block, case.label, "endpoint")
        try:
            session.loaded(case)
            result = _Measuring(session, block, case, seed).result()
            result["accounting"]["position"] = position
            session.emit_result(block, case, result)
        except CaseError as error:
            session.emit_failure(block, case, error)
        except NoServerError as error:
            told = CaseError("infrastructure", error.reason, error.last_words)
            session.emit_failure(block, case, told)
        except (UserError, PrerequisiteError, ValueError) as error:
            session.emit_failure(block, case, CaseError("unsupported", str(error)))
        except (MemoryError, PacelineError):
            raise
        except Exception as error:  # of one server: the others go on with the same calls
            detail = traceback.format_exc(limit=8)
            session.emit_failure(
                block, case, CaseError("crashed", f"{type(error).__name__}: {error}", detail)
            )


class _Measuring:
    """One server in one launch."""

    def __init__(self, session: Session, block: Block, case: Case, seed: int) -> None:
        self._session, self._block, self._case, self._seed = session, block, case, seed
        self._params = block.params
        self._side = _with_key(side_of(case.options), session)
        self._url = self._side.url

    def result(self) -> dict[str, Any]:
        """Measure it.

        Raises:
            CaseError: There is no server, or the run says nothing of it.
        """
        log = Path.cwd() / f"server-{self._session.launch}-{self._block.block}-{self._case.case_id}.log"
        with served(self._side, log) as self._url:
            self._warm_up()
            if self._params["until_saturated"]:
                return self._capacity()
            workload = self._workload(self._seed)
            before, began = self._told(), time.time()
            log_of_calls = self._send(workload)
            return self._judged(log_of_calls, workload, {"began": began, **self._server(before)})

    def _workload(self, seed: int, rate_per_s: float | None = None) -> Workload:
        params = self._params if rate_per_s is None else {**self._params, "rate_per_s": rate_per_s}
        if params["workload"] == TRACED and speaks(params):
            choice = spoken_sessions(params)
            calls = session_calls(
                choice,
                instants_of(params, seed, len(choice.sessions)),
                prompt_of=lambda exchange: (
                    Messages(exchange.messages)
                    if self._side.chat
                    else prompt_text(Messages(exchange.messages))
                ),
                think_s=float(str(params["think_s"])),
                seed=seed,
                chat=self._side.chat,
            )
            places = int(str(params["concurrency"])) if params["arrivals"] == CLOSED else None
            return Workload(calls=tuple(calls), concurrency=places)
        drawn = draw_workload(params, VOCABULARY, seed)
        return in_words(drawn, self._side.wording, chat=self._side.chat)

    def _warm_up(self) -> None:
        """Send a few calls of the point's shape, all at once, whose prompts nobody else asks for."""
        count = int(str(self._params["warm_up_calls"]))
        if count:
            alone = {**self._params, "workload": "independent", "arrivals": "at-once", "requests": count}
            drawn = draw_workload(alone, VOCABULARY, time.time_ns())
            self._send(in_words(drawn, self._side.wording, chat=self._side.chat), told=False)

    def _send(self, workload: Workload, *, told: bool = True) -> Log:
        session, label = self._session, self._case.label
        last_s = max((c.at_s or 0.0 for c in workload.calls), default=0.0)
        closed = workload.concurrency
        processes = int(str(self._params["client_processes"])) if told else 1

        began_s = time.monotonic()

        def tell(numbers: dict[str, int]) -> None:
            after_s = time.monotonic() - began_s
            session.events.emit("progress", label=label, of=len(workload.calls), after_s=after_s, **numbers)

        return run_load(
            self._url,
            self._side.model or MODEL_OF_MOCKS,
            workload,
            limits=Limits(call_s=CALL_S, silence_s=SILENCE_S, run_s=last_s + self._allowed_s()),
            header={"length_counts": True} if self._side.length_counts else None,
            processes=processes,
            warm=min(closed or WARM_CONNECTIONS, len(workload.calls)) // processes,
            key=None if self._side.key_header else session.secrets.get(self._side.key_variable),
            asking=self._side.asking,
            tls=self._side.tls,
            hurry=bool(self._params["real_time"]),
            tell=tell if told else None,
            ahead_s=AHEAD_S if told else SOON_S,
        )

    def _allowed_s(self) -> float:
        """Return how long calls may take behind the last instant: what the protocol allows a launch."""
        return max(float(self._block.protocol["timeout_s"]) - 60.0, 60.0)

    def _judged(self, log: Log, workload: Workload, server: dict[str, Any]) -> dict[str, Any]:
        outcomes = outcomes_of(log)
        certificate = certify(log, outcomes)
        kept = {"load": self._kept(log)}
        facts = accounting(outcomes) | {
            "client": certificate.facts(),
            "server": server | self._counter() | _lengths(outcomes, workload),
            **trace_facts(self._params),
        }
        if not certificate.valid:
            return {
                "status": "invalid",
                "reason": SAYS_NOTHING + "; ".join(certificate.problems),
                "detail": None,
                "metrics": {},
                "accounting": facts,
                "artifacts": kept,
            }
        values = seen(outcomes, self._params)
        values["requests_per_s"] = _requests_per_s(outcomes)
        known = {"max_rate": "until_saturated is off"}
        if (share := cached_share(outcomes)) is None:
            known["cached_prompt_share"] = "the server does not say what it found in its cache"
        else:
            values["cached_prompt_share"] = share
        metrics, absent = settled(values, known, outcomes)
        return {
            "status": "ok",
            "metrics": metrics,
            "absent": absent,
            "correctness": {"passed": True, "oracle": GATE, "gate_checks": sum(o.ok for o in outcomes)},
            "accounting": facts,
            "artifacts": kept,
        }

    def _capacity(self) -> dict[str, Any]:
        """Search the highest rate that is carried.

        Raises:
            CaseError: The client was too slow for a rate that the server carried, or no rate is carried.
        """
        params = self._params
        objective = {"ttft_s": float(str(params["slo_ttft"])), "tpot_s": float(str(params["slo_tpot"]))}
        target = float(str(params["slo_share"]))
        checked = 0
        steps: list[dict[str, Any]] = []

        def probe(rate_per_s: float, requests: int, number: int) -> Sequence[bool]:
            nonlocal checked
            outcomes = self._probed(self._seed + number, rate_per_s)
            checked += sum(o.ok for o in outcomes)
            outcomes.sort(key=lambda o: o.due_s or 0.0)
            met = [meets(o, **objective) for o in outcomes]
            steps.append(
                {
                    "rate_per_s": rate_per_s,
                    "met": sum(met) / len(met),
                    "output_tokens_per_s": tokens_per_s(outcomes),
                }
            )
            # Once some rate was carried, a probe in which a few calls miss by chance ends nothing.
            if all(step["met"] < target for step in steps):
                _require_within_reach(outcomes, met, rate_per_s, target)
            return met

        try:
            found = find_capacity(
                probe,
                start_per_s=float(str(params["rate_per_s"])),
                most_per_s=float(str(params["rate_ceiling"])),
                target=target,
                requests=int(str(params["requests"])),
            )
        except ValueError as error:
            raise CaseError("invalid", f"no rate meets the objectives: {error}") from error
        names = ("rate_per_s", "met", "requests", "carried", "decided")
        tried = [{name: getattr(step, name) for name in names} for step in found.steps]
        return {
            "status": "ok",
            "metrics": {"max_rate": {"samples": [found.rate_per_s]}},
            "absent": {},
            "correctness": {"passed": True, "oracle": GATE, "gate_checks": checked},
            "accounting": {
                "requested": sum(step.requests for step in found.steps),
                "ok": checked,
                "failed": sum(step.requests for step in found.steps) - checked,
                "dropped": 0,
                "search": tried,
                "probes": steps,
            },
        }

    def _probed(self, seed: int, rate_per_s: float) -> list[Outcome]:
        log = self._send(self._workload(seed, rate_per_s))
        outcomes = list(outcomes_of(log))
        problems = certify(log, outcomes).problems
        if problems:
            raise CaseError(
                "invalid",
                f"at {number_of(rate_per_s, 'call', form='.3g')}/s the run says nothing: {'; '.join(problems)}",
            )
        return outcomes

    def _told(self) -> dict[str, float] | None:
        side = self._side
        root = self._url.rstrip("/").removesuffix("/v1")
        with contextlib.suppress(OSError):
            return read_metrics(f"{root}/metrics", side.tls.context() if root.startswith("https") else None)
        return None

    def _server(self, before: dict[str, float] | None) -> dict[str, Any]:
        grown = changes(before, self._told())
        return {"metrics": grown} if grown else {}

    def _counter(self) -> dict[str, Any]:
        """Return by whose tokens prompts are as long as they were meant to be."""
        tokenizer = self._side.tokenizer
        spoken = self._params["workload"] == TRACED and speaks(self._params)
        return {} if tokenizer is None or spoken else {"tokenizer": tokenizer.facts()}

    def _kept(self, log: Log) -> str:
        """Leave the raw log in a file that goes with the record."""
        folder = Path.cwd() / "artifacts"
        folder.mkdir(exist_ok=True)
        path = folder / f"load-{self._session.launch}-{self._block.block}-{self._case.case_id}.jsonl.gz"
        write_log(path, log)
        return path.name


def _with_key(side: Side, session: Session) -> Side:
    """Return a side whose own header has the key, where it is not sent as a bearer's."""
    key = session.secrets.get(side.key_variable)
    if not side.key_header or not key:
        return side
    asking = replace(side.asking, headers={**side.asking.headers, side.key_header: key})
    return replace(side, asking=asking)


def _requests_per_s(outcomes: Sequence[Outcome]) -> float | None:
    due = [o.due_s for o in outcomes if o.due_s is not None]
    ends = [o.ended_s for o in outcomes if o.ended_s is not None]
    span_s = max(ends) - min(due) if due and ends else 0.0
    return sum(o.ok for o in outcomes) / span_s if span_s > 0 else None


def _require_within_reach(
    outcomes: Sequence[Outcome], met: Sequence[bool], rate_per_s: float, target: float
) -> None:
    """Check that a lower rate may be carried where this one is not.

    Raises:
        ValueError: Calls that had the server to themselves missed their objectives.
    """
    sent = [(o, ok) for o, ok in zip(outcomes, met, strict=True) if o.sent_s is not None]
    spans = [(o.sent_s or 0.0, math.inf if o.ended_s is None else o.ended_s) for o, _ in sent]
    if (found := met_alone(spans, [ok for _, ok in sent], target=target)) is not None:
        raise ValueError(
            f"at {number_of(rate_per_s, 'call', form='.3g')}/s, of {number_of(found[1], 'call')} that had the "
            f"server to themselves {found[0]} met them"
        )


def _lengths(outcomes: Sequence[Outcome], workload: Workload) -> dict[str, Any]:
    """Return what the server counted beside what was asked for, and a digest of each of the first answers."""
    prompts = [o.prompt_tokens for o in outcomes if o.ok and o.prompt_tokens]  # 0: the server does not count
    cached = [o.cached_tokens for o in outcomes if o.ok and o.cached_tokens is not None]
    answers = [o.tokens for o in outcomes if o.ok]
    asked = [c.output_tokens for c in workload.calls]
    told: dict[str, Any] = {
        "answer_tokens_asked": sum(asked) / len(asked),
        "answers": {
            str(o.number): hashlib.sha256(o.stream.text.encode()).hexdigest()[:12]
            for o in outcomes[:NUM_HASHED]
            if o.ok
        },
    }
    if answers:
        told["answer_tokens"] = sum(answers) / len(answers)
    if prompts:
        told["prompt_tokens"] = sum(prompts) / len(prompts)
        told["cached_prompt_tokens"] = sum(cached) / len(prompts) if cached else None
    meant = [o.asked_prompt_tokens for o in outcomes if o.ok and o.asked_prompt_tokens is not None]
    if meant:
        told["prompt_tokens_asked"] = sum(meant) / len(meant)
    surprises = list(told_of_prompts(outcomes, shared_beginnings(workload.calls)))
    return {**told, "surprises": surprises} if surprises else told
