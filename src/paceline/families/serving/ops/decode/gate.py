"""What no decoding may break, read from its log alone: the judge of decoders and of their simulator.

Every token handed out is the target's own behind those before it, and a call of the target had told it by then; no call
works on a token that no ended call has told; a call takes what it costs, whether or not its end was waited for; and
no device computes two calls at a time.
"""

from __future__ import annotations

from collections.abc import Sequence

from paceline.base.counting import number_of
from paceline.families.serving.api.speculating import CHECK, DRAFT, Given
from paceline.families.serving.ops.decode.chain import Chain
from paceline.families.serving.ops.decode.event_simulator import DecodingLog, Played

CLOSE = 1e-9
MOST = 5


class _Paths:
    """The prefixes of a log, laid again into a tree of one's own.

    Raises:
        ValueError: A prefix stands before the one that it continues.
    """

    def __init__(self, log: DecodingLog, chain: Chain) -> None:
        self.chain = chain
        self.own = [0]
        for number, (parent, token) in enumerate(log.edges, start=1):
            if not 0 <= parent < number:
                raise ValueError(f"prefix {number} continues prefix {parent}, which comes later")
            self.own.append(chain.child(self.own[parent], int(token)))

    def between(self, begin: int, end: int) -> list[int] | None:
        """Return the prefixes from one to another that continues it, both included; None where it does not."""
        found = [self.own[end]]
        while found[-1] != self.own[begin]:
            if found[-1] == 0:
                return None
            found.append(self.chain.edges[found[-1] - 1][0])
        return found[::-1]


def broken_laws(log: DecodingLog, given: Given, chain: Chain) -> list[str]:
    """Return what a log breaks, in words; none where it keeps all laws.

    Args:
        log: Of one answer.
        given: What there was.
        chain: Target and drafter, drawn anew.
    """
    try:
        paths = _Paths(log, chain)
    except ValueError as error:
        return [str(error)]
    told, checked, problems = _told(log, paths)
    problems += _known(log, paths, told)
    problems += _costs(log, paths, given)
    problems += _devices(log, given)
    problems += _delivered(log, given, chain, checked)
    return problems[:MOST]


def _told(log: DecodingLog, paths: _Paths) -> tuple[dict[int, float], dict[int, float], list[str]]:
    """Return since when each prefix was known, since when by the target, and calls that are no calls."""
    told: dict[int, float] = {0: 0.0}
    checked: dict[int, float] = {}
    problems: list[str] = []
    for number, job in enumerate(log.jobs):
        nodes = paths.between(job.begin, job.end)
        if nodes is None or job.kind not in (DRAFT, CHECK) or (job.kind == DRAFT and len(nodes) > 1):
            problems.append(f"call {number} is none: {job}")
            continue
        if job.cancelled_s is not None:
            continue
        for node in nodes:
            says = paths.chain.drafter(node) if job.kind == DRAFT else paths.chain.target(node)
            child = paths.chain.child(node, says)
            told[child] = min(job.end_s, told.get(child, job.end_s))
            if job.kind == CHECK:
                checked[child] = min(job.end_s, checked.get(child, job.end_s))
    return told, checked, problems


def _known(log: DecodingLog, paths: _Paths, told: dict[int, float]) -> list[str]:
    problems: list[str] = []
    for number, job in enumerate(log.jobs):
        for node in paths.between(0, job.end) or ():
            if told.get(node, float("inf")) > job.begin_s + CLOSE:
                place = paths.chain.depth(node) - 1
                problems.append(f"call {number} works on token {place}, which nobody had told by then")
                break
    return problems


def _costs(log: DecodingLog, paths: _Paths, given: Given) -> list[str]:
    problems: list[str] = []
    for number, job in enumerate(log.jobs):
        drafts = len(paths.between(job.begin, job.end) or (0,)) - 1
        seconds = given.drafter_s if job.kind == DRAFT else given.target_s * (1.0 + given.growth * drafts)
        took_s = job.end_s - job.begin_s
        if job.cancelled_s is not None and given.interruptible:
            right = abs(job.end_s - job.cancelled_s) <= CLOSE and -CLOSE <= took_s <= seconds + CLOSE
        else:
            right = abs(took_s - seconds) <= CLOSE
        if not right or job.begin_s < -CLOSE:
            problems.append(f"call {number} took {took_s:.6f} s, and {seconds:.6f} s is its cost")
    return problems


def _devices(log: DecodingLog, given: Given) -> list[str]:
    most = {DRAFT: 1, CHECK: given.servers}
    return [
        f"{number_of(busy, 'device computes', 'devices compute')} {kind} calls at a time, and there are {most[kind]}"
        for kind in (DRAFT, CHECK)
        if (busy := most_at_once([j for j in log.jobs if j.kind == kind])) > most[kind]
    ]


def most_at_once(jobs: Sequence[Played]) -> int:
    """Return how many of some calls were computed at the same time, at most."""
    changes = sorted(
        [(job.begin_s + CLOSE, 1) for job in jobs if job.end_s - job.begin_s > 2 * CLOSE]
        + [(job.end_s - CLOSE, -1) for job in jobs if job.end_s - job.begin_s > 2 * CLOSE]
    )
    busy = most = 0
    for _, change in changes:
        busy += change
        most = max(most, busy)
    return most


def _delivered(log: DecodingLog, given: Given, chain: Chain, checked: dict[int, float]) -> list[str]:
    if len(log.delivered) != given.num_tokens:
        return [
            f"{number_of(len(log.delivered), 'token was', 'tokens were')} handed out, and {given.num_tokens} "
            "were asked for"
        ]
    node, before_s = 0, 0.0
    for place, (token, at_s) in enumerate(log.delivered):
        if token != chain.target(node):
            return [f"token {place} is {token}, and the target says {chain.target(node)}"]
        node = chain.child(node, token)
        if checked.get(node, float("inf")) > at_s + CLOSE:
            return [f"token {place} was handed out before the target had told it"]
        if at_s < before_s - CLOSE:
            return [f"token {place} was handed out before the one before it"]
        before_s = at_s
    return []
