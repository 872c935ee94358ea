"""What no simulation may break, read from its log alone: the judge of a simulator, which shares none of its code.

Every call is served once and gets the tokens it wants; no token comes before all of its request's tokens are computed,
nor a step before a call is due; what a call finds computed somebody with the same beginning had computed, in the same
memory, before; nothing is computed twice at a time; a step takes what the table of costs says at the shares it had, and
no device gives more than itself; bytes moved are those of the tokens moved; and no memory holds more than it has.
Memory is bounded from below, by what each call is known to need, where memories do not share.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

from paceline.base.counting import number_of
from paceline.families.serving.api.costs import StepCosts
from paceline.families.serving.core.load.calls import Call
from paceline.families.serving.core.simulation.cluster import Link
from paceline.families.serving.core.simulation.log import DoneStep, Log, Part, Token, Transfer
from paceline.families.serving.core.simulation.sessions import due_times, text_of

CLOSE = 1e-6
"""Relative; virtual times are sums of floating-point numbers."""
MOST = 5
"""Problems that are told."""


def broken_laws(
    log: Log, calls: Sequence[Call], costs: StepCosts, link: Link, *, block_size: int
) -> list[str]:
    """Return what a log breaks, in words; none where it keeps all laws."""
    problems = _served_once(log, calls)
    problems += _in_order(log, calls)
    problems += _cost(log, costs)
    problems += _devices(log)
    problems += _moved(log, costs, link)
    problems += _memory(log, block_size)
    problems += _found(log, calls, block_size)
    return problems[:MOST]


def _served_once(log: Log, calls: Sequence[Call]) -> list[str]:
    got: dict[int, int] = defaultdict(int)
    for token in log.tokens:
        got[token.call] += 1
    problems = [
        f"call {n}, which nobody made, has tokens" for n in sorted(set(got) - {c.number for c in calls})
    ]
    for call in calls:
        if got[call.number] != call.output_tokens:
            problems.append(
                f"call {call.number} got {number_of(got[call.number], 'token')} of {call.output_tokens}"
            )
    return problems


def _in_order(log: Log, calls: Sequence[Call]) -> list[str]:
    """Follow each call through its steps: what is computed is there before the next; tokens come from steps' ends."""
    parts: dict[int, list[tuple[DoneStep, Part]]] = defaultdict(list)
    for step in log.steps:
        for part in step.parts:
            parts[part.call].append((step, part))
    tokens: dict[int, list[Token]] = defaultdict(list)
    for token in log.tokens:
        tokens[token.call].append(token)
    moves = {t.call: t for t in log.transfers}
    due = due_times(calls, log)
    problems: list[str] = []
    for call in calls:
        own = sorted(parts[call.number], key=lambda p: p[0].begin_s)
        problems += _follow(log, call, due[call.number], own, tokens[call.number], moves.get(call.number))
    return problems


def _follow(
    log: Log,
    call: Call,
    due_s: float,
    own: Sequence[tuple[DoneStep, Part]],
    tokens: Sequence[Token],
    move: Transfer | None,
) -> list[str]:
    there, free_s, restarts = 0, due_s, 0
    ended: list[float] = []
    name = f"call {call.number}"
    memory: int | None = None
    for step, part in own:
        if step.begin_s < free_s - CLOSE:
            return [f"{name} is computed at {step.begin_s:.6f} s, before {free_s:.6f} s"]
        where = log.workers[step.worker][0]
        if memory not in (None, where):
            if move is None or (move.source, move.target) != (memory, where):
                return [f"{name} changes from memory {memory} to {where} without its keys and values"]
            if step.begin_s < move.end_s - CLOSE:
                return [f"{name} is computed in memory {where} before its keys and values are there"]
        memory = where
        shares = _shares(log, where)
        # A gap is allowed once, at its begin, and only where a cache could have filled it; `_found` then asks who did.
        if part.begin > there and not (shares and not there):
            return [f"{name} goes on at token {part.begin}, and {there} are computed"]
        # Recomputation after a preemption, which begins at 0 unless a shared cache still has its blocks.
        if part.begin < there:
            restarts += 1
            if part.begin and not shares:
                return [f"{name} begins again at token {part.begin}, and its memory was empty"]
        there, free_s = part.begin + part.count, step.end_s
        assert isinstance(call.prompt, tuple)
        needed = len(call.prompt) + len(ended)
        if part.ends and there != needed:
            return [
                f"token {len(ended)} of {name} comes after {number_of(there, 'token')}; it needs {needed}"
            ]
        if part.ends:
            ended.append(step.end_s)
    if [t.at_s for t in tokens] != ended:
        return [f"tokens of {name} do not come at the ends of its steps"]
    lost = tokens[-1].preempted if tokens else 0
    if restarts < lost and memory is not None and not _shares(log, memory):
        return [f"{name} lost its memory {lost} times and was computed anew {restarts} times"]
    return []


def _shares(log: Log, memory: int) -> bool:
    # Read from what happened and not from what was declared; without counters it is the weaker law that holds.
    return bool(log.counters[memory]["prefix_hit_tokens"]) if log.counters else True


def _cost(log: Log, costs: StepCosts) -> list[str]:
    problems = []
    for step in log.steps:
        expected = costs.seconds([(p.begin, p.count, p.ends) for p in step.parts], step.seen)
        spent = sum(seconds * share for seconds, share in step.spans)
        lasted = sum(seconds for seconds, _ in step.spans)
        # An absolute floor of a millisecond times CLOSE: very short steps are differences of large instants.
        if abs(spent - expected) > CLOSE * max(expected, 1e-3):
            problems.append(
                f"a step of {number_of(len(step.parts), 'request')} took {spent:.6f} s of its device, "
                f"not {expected:.6f}"
            )
        if abs(lasted - (step.end_s - step.begin_s)) > CLOSE * max(step.end_s, 1e-3):
            problems.append(f"a step from {step.begin_s:.6f} to {step.end_s:.6f} s lasted {lasted:.6f} s")
    return problems


def _devices(log: Log) -> list[str]:
    """Add up the shares of each device over time; a worker computes one step at a time."""
    problems: list[str] = []
    changes: dict[int, list[tuple[float, float]]] = defaultdict(list)
    until = [0.0] * len(log.workers)
    for step in sorted(log.steps, key=lambda s: s.begin_s):
        if step.begin_s < until[step.worker] - CLOSE:
            problems.append(f"worker {step.worker} computes two steps at {step.begin_s:.6f} s")
        until[step.worker] = step.end_s
        at_s = step.begin_s
        for seconds, share in step.spans:
            device = log.memories[log.workers[step.worker][0]][0]
            changes[device] += [(at_s, share), (at_s + seconds, -share)]
            at_s += seconds
    for device, found in sorted(changes.items()):
        level = at_s = 0.0
        over_s = 0.0
        # At one instant ends come before begins, as their change is negative.
        for when, change in sorted(found):
            # Time above 1 and not the height: instants that differ by rounding overlap for a moment, which is no law
            # broken.
            over_s += (when - at_s) * (level > 1 + CLOSE)
            level, at_s = level + change, when
        if over_s > CLOSE * max(at_s, 1e-3):
            problems.append(f"device {device} gave more than itself for {over_s:.6f} s")
    return problems


def _moved(log: Log, costs: StepCosts, link: Link) -> list[str]:
    problems: list[str] = []
    seen: set[int] = set()
    until: dict[tuple[int, int], float] = defaultdict(float)
    for move in sorted(log.transfers, key=lambda t: t.begin_s):
        expected = move.tokens * costs.kv_bytes_per_token
        if move.size_bytes != expected:
            problems.append(
                f"call {move.call} moved {move.size_bytes} bytes; "
                f"{number_of(move.tokens, 'token has', 'tokens have')} {expected}"
            )
        needed_s = link.delay_s + expected / link.bytes_per_s
        if move.sent_s - move.begin_s < needed_s * (1 - CLOSE) or move.end_s < move.sent_s - CLOSE:
            problems.append(f"the bytes of call {move.call} arrive faster than the link carries them")
        pair = (move.source, move.target)
        if move.begin_s < until[pair] - CLOSE:
            problems.append(f"two transfers from memory {pair[0]} to {pair[1]} share the link")
        until[pair] = move.sent_s
        if move.call in seen:
            problems.append(f"call {move.call} moves twice")
        seen.add(move.call)
    return problems


def _memory(log: Log, block_size: int) -> list[str]:
    """Add up what calls hold in each memory from their steps; less than they really hold, never more."""
    problems = [
        f"memory {m} held {number_of(counted['peak_blocks'], 'block', form='.0f')}; it has {log.memories[m][1]}"
        for m, counted in enumerate(log.counters)
        if counted["peak_blocks"] > log.memories[m][1]
    ]
    events: dict[int, list[tuple[float, int, int, int]]] = defaultdict(list)
    last: dict[int, tuple[float, int]] = {}
    for step in log.steps:
        memory = log.workers[step.worker][0]
        for part in step.parts:
            blocks = -(-(part.begin + part.count) // block_size)
            # Kind 2 sorts behind kind 1: at one instant memory is given back before it is taken.
            events[memory].append((step.begin_s, 2, part.call, blocks))
            last[part.call] = max(last.get(part.call, (0.0, 0)), (step.end_s, memory))
    for move in log.transfers:
        events[move.source].append((move.end_s, 1, move.call, 0))
    for call, (at_s, memory) in last.items():
        events[memory].append((at_s, 1, call, 0))  # before what begins at that instant
    preempted = [bool(counted["preemptions"] or counted["prefix_hit_tokens"]) for counted in log.counters]
    for memory, found in sorted(events.items()):
        if preempted[memory]:  # when a call lost its memory, and who shares, the steps do not tell
            continue
        held: dict[int, int] = {}
        for _, _, call, blocks in sorted(found):
            held[call] = blocks
            if sum(held.values()) > log.memories[memory][1]:
                problems.append(
                    f"calls hold {number_of(sum(held.values()), 'block')} of memory {memory}; it has fewer"
                )
                break
            if not blocks:
                del held[call]
    return problems


def _found(log: Log, calls: Sequence[Call], block_size: int) -> list[str]:
    """Ask of what was not computed who had computed it: the same beginning, in the same memory, before."""
    blocks: dict[tuple[int, tuple[int, ...]], int] = {}
    chains: dict[int, list[int]] = {}
    for call in calls:
        text, chain = text_of(call), [0]
        for begin in range(0, len(text) - block_size + 1, block_size):
            key = (chain[-1], text[begin : begin + block_size])
            # Numbers for beginnings by comparing texts themselves: the engine's own hashes and tables are not asked.
            chain.append(blocks.setdefault(key, len(blocks) + 1))
        chains[call.number] = chain
    there: dict[tuple[int, int], float] = {}
    begun: dict[int, int] = {}
    problems = []
    moves = [
        (m.end_s, 0, m.target, [Part(call=m.call, begin=0, count=m.tokens, ends=False)])
        for m in log.transfers
    ]
    steps = [(s.end_s, 1, log.workers[s.worker][0], s.parts) for s in log.steps]
    begins = {id(s.parts): s.begin_s for s in log.steps}
    for end_s, _, memory, parts in sorted(moves + steps, key=lambda e: e[:3]):
        begin_s = begins.get(id(parts), end_s)
        for part in parts:
            chain = chains.get(part.call, [0])
            full = min(part.begin // block_size, len(chain) - 1)
            since = (
                there.get((memory, chain[full]), math.inf) if part.begin == full * block_size else math.inf
            )
            # Only what it had not computed itself needs somebody else, who must have ended before this step began.
            if part.begin > begun.get(part.call, 0) and since > begin_s + CLOSE:
                problems.append(
                    f"call {part.call} begins at token {part.begin}, and nobody had computed that beginning"
                )
            begun[part.call] = max(begun.get(part.call, 0), part.begin + part.count)
            last = min((part.begin + part.count) // block_size, len(chain) - 1)
            for place in range(full + 1, last + 1):
                there.setdefault((memory, chain[place]), end_s)
    return problems


def instance_copies(log: Log) -> int:
    """Return copies of the weights that one request's way through the deployment passes, at most."""
    joined: dict[int, set[int]] = {m: {m} for m in range(len(log.memories))}
    for move in log.transfers:
        both = joined[move.source] | joined[move.target]
        for memory in both:
            joined[memory] = both
    return max(len(group) for group in joined.values())
