"""The reasoner as a language model of the family: many traces, each at its own place, decoded in one batch.

Equal draws give equal tokens whatever shares the batch, and however decoding is cut into requests. Every token is
decided by its own number of the trace's stream, and by probabilities that different batch shapes round differently: in
float64 by about 1e-15, so the chance that this moves a token across its number is as small; in float32 by up to 1e-6,
which is too much for records of many million tokens.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from paceline.base.counting import number_of
from paceline.families.reasoning.core.language import Continuation, Draw, Piece
from paceline.families.reasoning.core.problems.embedded import END
from paceline.families.reasoning.core.reasoner.decoder import Decoder
from paceline.families.reasoning.core.reasoner.network import Network
from paceline.families.reasoning.core.reasoner.sampling import Floats, choose, uniform_numbers
from paceline.families.reasoning.core.reasoner.scoring import Scorer
from paceline.families.reasoning.core.reasoner.sharing import Block, Sharing, shared_step

NO_SLOT = -1


@dataclass(slots=True, kw_only=True)
class Trace:
    """One open trace."""

    tokens: list[int]
    """Prompt, forced and decoded ones."""
    slot: int
    """``NO_SLOT`` once it has ended: what continues it all the same reads it again."""
    num_cached: int
    """Tokens whose keys and values are in the slot; the last token's are not, until the next one is wanted."""
    shift: int = 0
    """By how much the places of new tokens are ahead of their positions: not 0 behind merged forks."""
    sharing: Sharing | None = None
    """With whom it shares its cache."""
    block: Block | None = None
    """Its own tokens in there."""
    num_parent: int | None = None
    """Tokens that it was forked with; None where it was not."""
    temperature: float
    numbers: Floats
    """One for every token that can still be decoded."""
    num_decoded: int = 0
    num_wanted: int = 0
    """Tokens asked for and not yet decoded."""
    stop: Collection[int] = ()
    """Tokens after which less than asked for is complete."""
    reported: int = 0
    """Tokens already returned by ``poll``, of the decoded ones."""
    logprobs: list[float] = field(default_factory=list)
    entropies: list[float] = field(default_factory=list)

    def ended(self, context: int) -> bool:
        """Tell whether nothing can follow."""
        # Of traces that share, all blocks fill the context; + 1 for the last token, which is not cached yet.
        visible = len(self.tokens) if self.sharing is None else self.sharing.num_cached + 1
        return self.tokens[-1] == END or visible >= context


class Reasoner:
    """A trained network that decodes traces; implements ``LanguageModel``."""

    def __init__(self, network: Network, identity: str) -> None:
        self._network = network
        self._identity = identity
        self._decoder = Decoder(network)
        self._scorer: Scorer | None = None
        self._traces: dict[int, Trace] = {}
        self._handles = itertools.count()
        self._under_way: dict[int, Trace] = {}

    @property
    def identity(self) -> str:
        """Name and digest of the weights: what recorded traces belong to."""
        return self._identity

    @property
    def context(self) -> int:
        """Most tokens of a trace, its prompt included."""
        return self._network.shape.context

    @property
    def num_parameters(self) -> int:
        """Parameters, which a token's work is proportional to."""
        return sum(p.numel() for p in self._network.parameters())

    @property
    def num_slots(self) -> int:
        """Slots of the cache, free and taken; they follow the most traces that were ever open at once."""
        return self._decoder.cache.num_slots

    @property
    def cache_bytes(self) -> int:
        """Memory of the cache."""
        return self._decoder.cache.size_bytes

    def begin(self, prompt: Sequence[int], draw: Draw) -> int:
        """Open a trace after a prompt and return its handle; nothing is decoded yet.

        Raises:
            ValueError: The prompt is empty, longer than the context or not of these symbols, or the temperature is no
                temperature.
        """
        return self._open(list(prompt), draw)

    def fork(self, trace: int, forced: Sequence[int], draw: Draw) -> int:
        """Open a trace that continues another one's present tokens by forced ones; the other one is left as it is.

        What is cached of the other one is copied and not computed again.

        Raises:
            ValueError: The trace is unknown or under way, or what ``begin`` refuses.
        """
        parent = self._alone(trace)
        # Its text alone does not tell how forks' positions overlapped, so it cannot be read again.
        if parent.shift and parent.slot == NO_SLOT:
            raise ValueError(f"trace {trace} has ended behind a merge, and cannot be read again")
        child = self._open([*parent.tokens, *forced], draw)
        copied = self._traces[child]
        copied.shift, copied.num_parent = parent.shift, len(parent.tokens)
        # An ended trace has given its slot back: the child then reads the whole text anew.
        if parent.num_cached:
            with torch.inference_mode():
                self._decoder.cache.copy(parent.slot, copied.slot, parent.num_cached)
            copied.num_cached = parent.num_cached
        return child

    def merge(self, trace: int, forks: Sequence[int], forced: Sequence[int], draw: Draw) -> int:
        """Open a trace that continues another one's present tokens by those of its forks, then by forced ones.

        Keys and values are copied with the positions at which they were computed; a last token that nothing has
        followed yet is computed now, for the first time. The forced tokens' positions follow the longest fork's.

        Raises:
            ValueError: A trace is unknown, under way, merged itself, or no fork of the first; nothing is forced.
        """
        parent, children = self._alone(trace), [self._alone(fork) for fork in forks]
        if not forced:
            raise ValueError("a merge needs a token behind it, from which decoding goes on")
        for name, one in zip((trace, *forks), (parent, *children), strict=True):
            if one.shift:
                raise ValueError(f"trace {name} has been merged itself")
        begin = len(parent.tokens)
        # Forks of another moment have other keys and values for the common beginning, which is copied from one of
        # them.
        if any(child.num_parent != begin or child.tokens[:begin] != parent.tokens for child in children):
            raise ValueError(f"not all of {tuple(forks)} are forks of trace {trace} as it is now")
        lengths = [len(child.tokens) - begin for child in children]
        written = [token for child in children for token in child.tokens[begin:]]
        merged = self._open([*parent.tokens, *written, *forced], draw)
        made, cache = self._traces[merged], self._decoder.cache
        with torch.inference_mode():
            # A fork's last token was decoded and never read: its keys and values are the only ones computed here.
            self._catch_up(children)
            cache.copy(children[0].slot, made.slot, begin)  # it has read all of what came before
            into = begin
            for child, length in zip(children, lengths, strict=True):
                cache.copy(child.slot, made.slot, length, begin=begin, into=into)
                into += length
        # Places count all forks, positions only the longest: what follows is that much ahead.
        made.num_cached, made.shift = into, sum(lengths) - max(lengths)
        return merged

    def share(self, trace: int, openings: Sequence[int], draws: Sequence[Draw]) -> list[int]:
        """Open traces that continue another one's present tokens by an opening each, and see each other's tokens.

        What one decodes is visible to the others from the next token on, whichever of them are under way. A trace
        ends as well when all that it sees fills the context.

        Raises:
            ValueError: The trace is unknown, under way, merged or shared itself, there is no opening or not a draw for
                each, or what ``begin`` refuses.
        """
        parent = self._alone(trace)
        if parent.shift or not openings or len(openings) != len(draws):
            raise ValueError(f"{len(openings)} openings and {len(draws)} draws for trace {trace}")
        handles = [self._open([*parent.tokens, one], draw) for one, draw in zip(openings, draws, strict=True)]
        cache, begin = self._decoder.cache, len(parent.tokens)
        with torch.inference_mode():
            self._catch_up([parent])
            # A slot of its own for the beginning: the parent may be dropped while they go on.
            sharing = Sharing(beginning=Block(slot=cache.take(), length=begin), num_open=len(handles))
            cache.copy(parent.slot, sharing.beginning.slot, begin)
        for handle in handles:
            made = self._traces[handle]
            made.sharing, made.block = sharing, Block(slot=made.slot)
            sharing.blocks.append(made.block)
        return handles

    def _alone(self, trace: int) -> Trace:
        """Return a trace that is not under way and has its cache to itself."""
        known = self._known(trace)
        if known.num_wanted:
            raise ValueError(f"trace {trace} is under way and cannot be copied")
        if known.sharing is not None:
            raise ValueError(f"trace {trace} shares its cache and cannot be copied")
        return known

    def _catch_up(self, traces: Sequence[Trace]) -> None:
        """Compute what is missing of traces' keys and values, their last tokens' included."""
        behind = [t for t in traces if t.num_cached < len(t.tokens)]
        for trace in behind:
            if trace.slot == NO_SLOT:
                trace.slot = self._decoder.cache.take()
        if behind:
            chunks = [t.tokens[t.num_cached :] for t in behind]
            shifts = [t.shift for t in behind]
            self._decoder.read([t.slot for t in behind], [t.num_cached for t in behind], chunks, shifts)
        for trace in behind:
            trace.num_cached = len(trace.tokens)

    def advance(self, trace: int, tokens: int, stop: Collection[int] = ()) -> None:
        """Ask for up to this many tokens more, or up to one of the stopping ones; ``poll`` tells when they are there.

        A stopping token is the last one of its piece; the trace can be advanced from there.

        Raises:
            ValueError: The trace is unknown, has ended, or is under way, or no token is asked for.
        """
        known = self._known(trace)
        if known.num_wanted:
            raise ValueError(f"trace {trace} is under way already")
        if known.ended(self.context):
            raise ValueError(f"trace {trace} has ended")
        if tokens < 1:
            raise ValueError(f"{number_of(tokens, 'token')} asked of trace {trace}; at least 1")
        known.num_wanted = tokens
        known.stop = frozenset(stop)
        self._under_way[trace] = known

    def poll(self) -> list[Piece]:
        """Decode one token of every trace under way; return what was asked for and is complete, by handle."""
        if not self._under_way:
            return []
        live = list(self._under_way.values())
        with torch.inference_mode():
            self._decode(live)
        done = sorted(handle for handle, trace in self._under_way.items() if not trace.num_wanted)
        return [self._piece(handle, self._under_way.pop(handle)) for handle in done]

    def score(self, asked: Sequence[Continuation]) -> list[list[float]]:
        """Return the log-probability of each token of each continuation, at temperature 1.

        Raises:
            ValueError: A prompt is empty, or longer than the context with what follows, or not of these symbols.
        """
        for prompt, continuation in asked:
            self._check(prompt)
            self._check([*prompt, *continuation])
        with torch.inference_mode():
            self._scorer = self._scorer or Scorer(self._network)
            return self._scorer.score(asked)

    def drop(self, trace: int) -> None:
        """Forget a trace and its cache; when it is under way, decoding stops.

        Raises:
            ValueError: The trace is unknown.
        """
        known, cache = self._known(trace), self._decoder.cache
        if known.sharing is not None:
            self._leave(known, known.sharing)
        elif known.slot != NO_SLOT:
            cache.give_back(known.slot)
        self._under_way.pop(trace, None)
        del self._traces[trace]

    def _leave(self, trace: Trace, sharing: Sharing) -> None:
        """Give back what traces share once all have been dropped: until then the others see it."""
        sharing.num_open -= 1
        if not sharing.num_open:
            for block in (sharing.beginning, *sharing.blocks):
                self._decoder.cache.give_back(block.slot)

    def _open(self, tokens: list[int], draw: Draw) -> int:
        self._check(tokens)
        if not 0 <= draw.temperature < math.inf:
            raise ValueError(f"a temperature of {draw.temperature}; 0 or more")
        with torch.inference_mode():
            self._decoder.cache.reserve(len(tokens))
            slot = self._decoder.cache.take()
        handle = next(self._handles)
        self._traces[handle] = Trace(
            tokens=tokens,
            slot=slot,
            num_cached=0,
            temperature=draw.temperature,
            numbers=uniform_numbers(draw.key, self.context - len(tokens)),
        )
        return handle

    def _known(self, trace: int) -> Trace:
        if trace not in self._traces:
            raise ValueError(f"no trace {trace}; {len(self._traces)} are open")
        return self._traces[trace]

    def _check(self, tokens: Sequence[int]) -> None:
        if not 1 <= len(tokens) <= self.context:
            raise ValueError(f"{number_of(len(tokens), 'token')}; 1 to {self.context}")
        symbols = self._network.shape.symbols
        if not all(0 <= token < symbols for token in tokens):
            raise ValueError(f"tokens are 0 to {symbols - 1}")

    def _decode(self, live: Sequence[Trace]) -> None:
        """Append one token to every trace."""
        # Once for all, before slots are read: growing copies the whole store.
        self._decoder.cache.reserve(max(len(trace.tokens) for trace in live))
        logits_BV = torch.cat(
            [
                step(part)
                for step, part in (
                    (self._step, [t for t in live if t.sharing is None]),
                    (self._shared_step, [t for t in live if t.sharing is not None]),
                )
                if part
            ]
        )
        # As the logits were put together: alone first, then those who share; the sort is stable.
        live = sorted(live, key=lambda trace: trace.sharing is not None)
        temperatures_B = np.array([t.temperature for t in live])
        numbers_B = np.array([t.numbers[t.num_decoded] for t in live])
        chosen = choose(logits_BV.double().numpy(), temperatures_B, numbers_B)
        columns = (chosen.tokens.tolist(), chosen.logprobs.tolist(), chosen.entropies.tolist())
        for trace, token, logprob, entropy in zip(live, *columns, strict=True):
            trace.num_cached = len(trace.tokens)
            trace.tokens.append(token)
            trace.logprobs.append(logprob)
            trace.entropies.append(entropy)
            trace.num_decoded += 1
            ended = trace.ended(self.context)
            trace.num_wanted = 0 if ended or token in trace.stop else trace.num_wanted - 1
            if ended and trace.sharing is None:
                self._decoder.cache.give_back(trace.slot)
                # Slots are few and ended traces many; who continues one all the same reads it again.
                trace.slot, trace.num_cached = NO_SLOT, 0

    def _step(self, live: Sequence[Trace]) -> Tensor:
        """Return the logits of each trace's next token, (B, V)."""
        new = [trace for trace in live if trace.num_cached < len(trace.tokens) - 1]
        if new:
            chunks = [trace.tokens[trace.num_cached : -1] for trace in new]
            shifts = [t.shift for t in new]
            self._decoder.read([t.slot for t in new], [t.num_cached for t in new], chunks, shifts)
        # Everybody's last token in one pass, whatever had to be read before.
        slots, places = [t.slot for t in live], [len(t.tokens) - 1 for t in live]
        tokens, shifts = [t.tokens[-1] for t in live], [t.shift for t in live]
        return self._decoder.step(slots, places, tokens, shifts)

    def _shared_step(self, live: Sequence[Trace]) -> Tensor:
        rows = [(t.sharing, t.block) for t in live if t.sharing is not None and t.block is not None]
        return shared_step(self._decoder, rows, [t.tokens[-1] for t in live])

    def _piece(self, handle: int, trace: Trace) -> Piece:
        """Return what has not been reported yet."""
        fresh = slice(trace.reported, None)
        since = len(trace.tokens) - trace.num_decoded + trace.reported
        trace.reported = trace.num_decoded
        return Piece(
            trace=handle,
            tokens=tuple(trace.tokens[since:]),
            logprobs=tuple(trace.logprobs[fresh]),
            entropies=tuple(trace.entropies[fresh]),
            ended=trace.ended(self.context),
        )
