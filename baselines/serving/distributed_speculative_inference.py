"""Distributed speculative inference: drafting never waits for checks, which copies of the target do side by side.

Timor, Mamou, Korat, Berchansky, Pereg, Wasserblat, Galanti, Gordon and Harel, 2025, "Distributed Speculative Inference
(DSI): Speculation Parallelism for Provably Faster Lossless Language Model Inference" (arXiv:2405.14105), its
algorithm 1 for a finite number of servers and its equation 1 for the lookahead.

Algorithm: the drafter drafts on behind all that is drafted. Whenever k drafts are unchecked and a copy of the target is
free, it checks them while drafting goes on; a copy also starts at once behind a token that is sure, without drafts, so
that the answer goes on at the target's own pace if the drafter is useless. Where a check disagrees, the target's token
replaces the draft, whatever was built on it is given up, and drafting and checking start behind it.
Cost: N·t_draft + t_target where all drafts agree; each that does not costs about t_target once more, as one token of
the target alone would. k is the least for which the copies suffice, ceil(t_target / (k·t_draft)) <= SP (equation 1).
All copies work all the time, and most of that is given up where drafts seldom agree.
Limits: the drafter has a device of its own beside the SP of the target's copies.
"""

from __future__ import annotations

import math

from paceline import technique
from paceline.families.serving.api.speculating import CHECK, Given, Job, Simulator


def least_lookahead(given: Given) -> int:
    """Return the fewest drafts a check for which copies of the target never run out (equation 1)."""
    drafts_a_call = given.target_s / given.drafter_s
    lookahead = max(1, math.floor(drafts_a_call / given.servers))
    # A ratio that is a whole number but for rounding must not be rounded up.
    while math.ceil(drafts_a_call / lookahead - 1e-9) > given.servers:
        lookahead += 1
    return lookahead


@technique(
    name="distributed-speculative-inference",
    family="serving",
    implements=("decode",),
    paper="distributed-speculative-inference",
    summary="drafting never waits: copies of the target check side by side",
    fidelity={
        "source": {
            "read": "code",
            "paper": "the abstract, read for this card; algorithm 1 and equation 1 by the header",
            "code": (
                "github.com/keyboardAnt/distributed-speculative-inference: "
                "dsi/configs/experiment/simul/offline.py, dsi/offline/simul/dsi.py, dsi/online/simul/core.py"
            ),
        },
        "deviations": (
            (
                "Time is virtual, and the harness plays it; the authors' online simulation runs threads that "
                "sleep."
            ),
            "Answers are greedy.",
            (
                "Copies are counted and busy ones are waited for; the authors' offline simulation adds up costs, "
                "and takes plain decoding where that is cheaper."
            ),
        ),
        "constants": {
            "lookahead": {
                "here": 0,
                "authors": "5 (k), with servers enough demanded by the same inequality, offline.py",
                "official": 5,
                "source": "github.com/keyboardAnt/distributed-speculative-inference: "
                "dsi/configs/experiment/simul/offline.py",
                "differs": "0 takes the least for which copies suffice, by their inequality",
            },
        },
        "checked_by": (
            "tests/unit/test_decoding.py::test_the_lookahead_is_the_least_that_equation_1_allows",
            "tests/unit/test_decoding.py::test_closed_forms_where_drafts_always_or_never_agree",
        ),
    },
)
class DistributedSpeculation:
    """Drafts and checks at the same time.

    Args:
        lookahead: Drafts of a check; the least that keeps the copies from running out where it is 0.
    """

    def __init__(self, *, lookahead: int = 0) -> None:
        self.lookahead = lookahead

    def decode(self, simulator: Simulator) -> None:
        """Hand out the target's answer."""
        run = _Run(simulator, self.lookahead or least_lookahead(simulator.given))
        while run.sure < simulator.given.num_tokens:
            run.go_on()
            run.take(simulator.wait())
        run.end()


class _Run:
    """One answer.

    Args:
        simulator: Where to ask.
        lookahead: Drafts of a check.
    """

    def __init__(self, simulator: Simulator, lookahead: int) -> None:
        self.simulator, self.lookahead = simulator, lookahead
        self.tokens: list[int] = []
        """Sure ones, then drafts."""
        self.sure = 0
        self.sent = 0
        """Of the tokens, those that are sure or that a check has been asked for."""
        self.checks: list[Job] = []
        self.early: list[Job] = []
        """Checks that ended before one of an earlier place, as short ones do where more drafts take longer."""
        self.drafting: Job | None = None

    def go_on(self) -> None:
        """Keep the drafter and the target's copies busy."""
        # The last token needs no draft: a check tells one token beyond its drafts.
        wanted = self.simulator.given.num_tokens - 1
        if self.drafting is None and len(self.tokens) < wanted and self.simulator.drafter_free():
            self.drafting = self.simulator.draft(self.tokens)
        while self.simulator.free_servers():
            # A correction can make tokens sure that no check was asked for.
            self.sent = max(self.sent, self.sure)
            drafts = min(len(self.tokens) - self.sent, self.lookahead)
            whole = drafts == self.lookahead or (drafts > 0 and len(self.tokens) == wanted)
            # Fewer than k drafts wait for more while a check is under way. With none under way a check starts at once,
            # if need be without a draft, so that the answer goes on at the target's own pace.
            if self.checks and not whole:
                return
            self.checks.append(
                self.simulator.check(self.tokens[: self.sent], self.tokens[self.sent : self.sent + drafts])
            )
            self.sent += drafts

    def take(self, job: Job) -> None:
        """Use what a job has told."""
        if job is self.drafting:
            self.drafting = None
        if job in self.checks:
            self.checks.remove(job)
        if job.told is None:
            return
        if job.kind == CHECK:
            self.early.append(job)
            self._take_checks()
        else:
            self.tokens += job.told

    def _take_checks(self) -> None:
        """Use the checks whose prefix is sure by now, in the order of their places; others wait for those before."""
        while ready := [job for job in self.early if len(job.prefix) <= self.sure]:
            job = min(ready, key=lambda j: len(j.prefix))
            self.early.remove(job)
            assert job.told is not None
            self._checked(len(job.prefix), job.told)

    def _checked(self, place: int, told: tuple[int, ...]) -> None:
        before = self.sure
        for at, token in enumerate(told, start=place):
            # Greedy acceptance: a draft stands where it is the target's own token, given all tokens before it.
            if at < len(self.tokens) and self.tokens[at] == token:
                self.sure = max(self.sure, at + 1)
                continue
            self._start_behind(at, token)
            break
        self.sure = min(self.sure, self.simulator.given.num_tokens)
        self.simulator.deliver(self.tokens[before : self.sure])

    def end(self) -> None:
        """Give up what is still computed."""
        # Calls that run on would keep their devices busy beyond the answer's end.
        for job in [*self.checks, *([self.drafting] if self.drafting else [])]:
            self.simulator.cancel(job)

    def _start_behind(self, place: int, token: int) -> None:
        """Put the target's token at a place, and give up what was built on another or on none."""
        drafted = place < len(self.tokens)
        self.tokens = [*self.tokens[:place], token]
        self.sure = self.sent = place + 1
        # It continues a prefix that is wrong now, or drafts the very token that the target has just told.
        if self.drafting is not None:
            self.simulator.cancel(self.drafting)
            self.drafting = None
        # Checks under way continue the rejected draft. Where no draft stood at this place none of them can.
        for job in self.checks if drafted else ():
            self.simulator.cancel(job)
        if drafted:
            self.checks, self.early = [], []
