"""Dynasor's certaindex: traces are asked for their answer on the way, and a question stops when the answers settle.

Fu et al., 2024, "Efficiently Serving LLM Reasoning Programs with Certaindex" (arXiv:2412.20993): certaindex from the
entropy of the answers of several samples, and probes in the middle of a chain of thought, which stops when its latest
answers agree.

Algorithm: n traces go on in chunks of c tokens. After each chunk every trace that has not ended is copied, forced to
name its answer, and read; the copy is forgotten. A trace whose last s answers agree is settled: it votes by that answer
and is dropped. When a trace has ended or settled for at least m of them, certaindex is 1 − H/log(votes), with H the
entropy of the votes; at or above a threshold the question stops and the most frequent vote is returned.
Cost: the traces' tokens up to where each stopped, plus a few tokens of each probe; a round adds its longest chunk and
its longest probe to the critical path; the cache of the traces that go on.
Limits: a model that was not taught to answer early gives probes that mean little.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from paceline import technique
from paceline.families.reasoning.api.requests import (
    Drop,
    Extend,
    Method,
    Plan,
    Probe,
    Question,
    Reply,
    Sample,
    Task,
    require,
)
from paceline.families.reasoning.api.votes import majority, normalised_entropy


@dataclass(slots=True)
class _Thought:
    """One trace on its way."""

    trace: int
    probes: list[str | None] = field(default_factory=list)
    ended: bool = False
    vote: str | None = None

    def settled(self, agreeing: int) -> bool:
        """Whether its latest probes agree on an answer."""
        latest = self.probes[-agreeing:]
        # Unreadable probes agree on nothing: a trace that cannot answer yet is not settled.
        return len(latest) == agreeing and latest[0] is not None and len(set(latest)) == 1


@technique(
    name="dynasor",
    family="reasoning",
    implements=("solve",),
    summary="traces stop when their probed answers settle, questions when the votes agree",
    paper="dynasor",
    fidelity={
        "source": {
            "read": "code",
            "paper": "certaindex and probes by the header, not read for this card",
            "code": "github.com/hao-ai-lab/Dynasor: dynasor/core/entropy.py, dynasor/cot.py",
        },
        "deviations": (
            "Probes come more often, since traces have about 90 tokens: every 16 instead of every 32 or 64.",
            "Probes take the likeliest tokens; the authors draw them at a temperature of 0.6.",
            (
                "A probe that hedges counts as any other; the authors' does not where its text has words such as "
                "wait, but or hmm."
            ),
            (
                "Stopping of a trace and entropy over traces are one method here; the authors' client "
                "(cot.py) stops one trace by its probes alone."
            ),
            "The scheduling between programmes is not part of this.",
        ),
        "constants": {
            "chunk": {
                "here": 16,
                "authors": "32 or 64, cot.py",
                "official": 32,
                "source": "github.com/hao-ai-lab/Dynasor: dynasor/core/cot.py",
                "differs": "traces have about 90 tokens; 32 is that of the effort crazy, 64 of all others",
            },
            "agreeing": {
                "here": 2,
                "authors": "2 to 8, by effort, cot.py",
            },
            "least_votes": {"here": 3, "authors": "not public"},
            "threshold": {"here": 0.7, "authors": "not public"},
        },
        "checked_by": (
            "tests/unit/test_reasoning_executor.py::test_probes_are_paid_for_and_forced_tokens_are_not_decoded",
            "tests/unit/test_reasoning_executor.py::test_certaindex_ends_a_question_once_votes_agree",
        ),
    },
)
def dynasor(
    task: Task, *, chunk: int = 16, agreeing: int = 2, least_votes: int = 3, threshold: float = 0.7
) -> Method:
    """Return the method.

    Args:
        task: The point.
        chunk: Tokens between probes.
        agreeing: Probes in a row that must agree before a trace is settled; 0 never settles one early.
        least_votes: Votes before certaindex may end a question.
        threshold: Certaindex at which a question ends.

    Raises:
        OptionError: A number is out of range.
    """
    require("chunk", chunk, least=1)
    require("agreeing", agreeing, least=0)
    require("least_votes", least_votes, least=1)

    def solve(question: Question) -> Plan:
        replies = yield [Sample(index=i, tokens=chunk) for i in range(question.samples)]
        thoughts = [_Thought(reply.trace) for reply in replies]
        going = list(thoughts)
        while True:
            # Ends before probes: an ended trace has its answer, and cannot be copied for a probe.
            _note_ends(going, replies)
            going = [t for t in going if not t.ended]
            if not going or _certain(thoughts, least_votes, threshold):
                break
            # Without settling probes would cost tokens and decide nothing; certaindex then looks at ended traces
            # alone.
            if agreeing:
                replies = yield [Probe(trace=t.trace) for t in going]
                settled = _note_probes(going, replies, agreeing)
                going = [t for t in going if not t.ended]
                yield [Drop(trace=t.trace) for t in settled]
                if not going or _certain(thoughts, least_votes, threshold):
                    break
            replies = yield [Extend(trace=t.trace, tokens=chunk) for t in going]
        return majority(t.vote for t in thoughts if t.ended)

    return solve


def _note_ends(going: list[_Thought], replies: tuple[Reply, ...]) -> None:
    for thought, reply in zip(going, replies, strict=True):
        if reply.ended:
            thought.ended, thought.vote = True, reply.answer


def _note_probes(going: list[_Thought], replies: tuple[Reply, ...], agreeing: int) -> list[_Thought]:
    settled = []
    for thought, reply in zip(going, replies, strict=True):
        thought.probes.append(reply.answer)
        if thought.settled(agreeing):
            thought.ended, thought.vote = True, reply.answer
            settled.append(thought)
    return settled


def _certain(thoughts: list[_Thought], least_votes: int, threshold: float) -> bool:
    votes = [t.vote for t in thoughts if t.ended]
    # Two votes that agree have no entropy and would already be certain, hence the least number of votes.
    return len(votes) >= least_votes and 1 - normalised_entropy(votes) >= threshold
