"""Any causal language model of ``transformers`` as a model of the family: a slot for each trace, one batch for all.

Tokens are drawn as the embedded reasoner draws them: each is decided by its own number of the trace's stream
(``reasoner.sampling``) and by the network's logits, taken as float64. Logits depend on what shares the batch, and on
how a text was cut into requests, by the rounding of the network's type alone. In float64 that moves probabilities by
about 1e-15, so equal draws give equal tokens (``repeatable``). In float32 it is about 1e-6, so that one token in about
a million is another one; in bfloat16 about 1e-2, so that traces part within some hundred tokens. All of this holds on
one machine with one version of torch; others round otherwise. What was recorded stays as it is in every case.

When a network is loaded, a few tokens are read in two ways, over the cache of this module and plainly. A network whose
logits differ is refused: it keeps other state than keys and values, or hides positions by rules of its own.

Shape suffixes: B rows, T new positions of a row, L visible positions, V symbols.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from paceline.base.counting import number_of
from paceline.base.errors import UserError
from paceline.families.reasoning.core.backends.network_facts import (
    chat_prompt,
    context_of,
    end_tokens,
    text_of,
)
from paceline.families.reasoning.core.backends.slot_cache import SlotCache
from paceline.families.reasoning.core.language import Continuation, Draw, Piece
from paceline.families.reasoning.core.reasoner.sampling import Floats, choose, uniform_numbers

MAX_PREFILL_TOKENS = 8192
"""Tokens read at once, padding included: bounds the memory that many new prompts take."""
LEAST_LOGIT = -1e30
MAX_DIFFERENCE = {torch.float64: 1e-9, torch.float32: 1e-3}
"""Of logits of one text read in two ways, relative to the largest; 0.1 for narrower types."""


@dataclass(slots=True, kw_only=True)
class Trace:
    """One open trace."""

    tokens: list[int]
    """Prompt, forced and decoded ones."""
    slot: int
    temperature: float
    numbers: Floats
    """One for every token that can still be decoded."""
    num_cached: int = 0
    """Tokens whose keys and values are in the slot; the last token's never are, until the next one is wanted."""
    num_decoded: int = 0
    num_wanted: int = 0
    """Tokens asked for and not yet decoded."""
    stop: Collection[int] = ()
    reported: int = 0
    """Tokens already returned by ``poll``, of the decoded ones."""
    logprobs: list[float] = field(default_factory=list)
    entropies: list[float] = field(default_factory=list)


class TransformersModel:
    """A network and its tokenizer; implements ``LanguageModel``. ``pretrained.load`` makes one.

    Args:
        network: A causal language model of ``transformers``, on its device.
        tokenizer: Its tokenizer.
        identity: Name and digest of the weights.
        context: Most tokens of a trace; None takes what the network was made for.

    Raises:
        UserError: The network cannot be decoded over slots, or it says no context.
    """

    def __init__(self, network: Any, tokenizer: Any, *, identity: str, context: int | None = None) -> None:
        self._network, self._tokenizer, self._identity = network.eval(), tokenizer, identity
        self._context = context_of(network.config, identity, context)
        self._symbols = int(network.get_input_embeddings().weight.shape[0])
        self.end = end_tokens(network, tokenizer)
        """Tokens that end a trace when they are decoded; in a prompt they do not."""
        self._cache = SlotCache(self._context)
        self._traces: dict[int, Trace] = {}
        self._under_way: dict[int, Trace] = {}
        self._handles = itertools.count()
        self._check_network()

    @property
    def identity(self) -> str:
        """Name and digest of the weights, with their type: what recorded traces belong to."""
        return f"{self._identity}:{str(self._network.dtype).removeprefix('torch.')}"

    @property
    def context(self) -> int:
        """Most tokens of a trace, its prompt included."""
        return self._context

    @property
    def num_parameters(self) -> int | None:
        """Parameters, which a token's work is proportional to."""
        return sum(int(p.numel()) for p in self._network.parameters())

    @property
    def repeatable(self) -> bool:
        """Whether equal draws give equal tokens whatever shares their batch: of networks in float64."""
        return bool(self._network.dtype == torch.float64)

    @property
    def cache_bytes(self) -> int:
        """Memory of the keys and values."""
        return self._cache.size_bytes

    @property
    def has_template(self) -> bool:
        """Tell whether its tokenizer has a template of chats."""
        return self._tokenizer.chat_template is not None

    def encode(self, text: str) -> tuple[int, ...]:
        """Return a text's tokens and nothing else: no beginning, no end."""
        return tuple(self._tokenizer.encode(text, add_special_tokens=False))

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens, without special ones."""
        return text_of(self._tokenizer, tokens)

    def chat(
        self, question: str, *, system: str = "", options: Mapping[str, Any] | None = None
    ) -> tuple[int, ...]:
        """Return a prompt that asks a question: by the tokenizer's template, or as it begins texts without one.

        Args:
            question: What the user says.
            system: What the system says before; empty says nothing.
            options: Further variables of the template, such as ``enable_thinking``.
        """
        return chat_prompt(self._tokenizer, question, system, options or {})

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
        parent = self._known(trace)
        if trace in self._under_way:
            raise ValueError(f"trace {trace} is under way and cannot be forked")
        handle = self._open([*parent.tokens, *forced], draw)
        child = self._traces[handle]
        # The parent's last token is not cached and need not be: it is read with the forced ones.
        child.num_cached = parent.num_cached
        with torch.inference_mode():
            self._cache.copy(parent.slot, child.slot, parent.num_cached)
        return handle

    def merge(self, trace: int, forks: Sequence[int], forced: Sequence[int], draw: Draw) -> int:
        """Refuse: keys and values of forks cannot be put behind each other here.

        Raises:
            ValueError: Always.
        """
        raise ValueError("this model cannot merge the caches of forks")

    def share(self, trace: int, openings: Sequence[int], draws: Sequence[Draw]) -> list[int]:
        """Refuse: traces cannot see each other here.

        Raises:
            ValueError: Always.
        """
        raise ValueError("this model cannot let traces read one cache")

    def advance(self, trace: int, tokens: int, stop: Collection[int] = ()) -> None:
        """Ask for up to this many tokens more, or up to one of the stopping ones; ``poll`` tells when they are there.

        A stopping token is the last one of its piece; the trace can be advanced from there.

        Raises:
            ValueError: The trace is unknown, has ended, or is under way, or no token is asked for.
        """
        known = self._known(trace)
        if known.num_wanted:
            raise ValueError(f"trace {trace} is under way already")
        if self._ended(known):
            raise ValueError(f"trace {trace} has ended")
        if tokens < 1:
            raise ValueError(f"{number_of(tokens, 'token')} asked of trace {trace}; at least 1")
        known.num_wanted, known.stop = tokens, frozenset(stop)
        self._under_way[trace] = known

    def poll(self) -> list[Piece]:
        """Decode one token of every trace under way; return what was asked for and is complete, by handle."""
        if not self._under_way:
            return []
        with torch.inference_mode():
            self._decode(sorted(self._under_way.values(), key=lambda trace: trace.slot))
        done = sorted(handle for handle, trace in self._under_way.items() if not trace.num_wanted)
        return [self._piece(handle, self._under_way.pop(handle)) for handle in done]

    def score(self, asked: Sequence[Continuation]) -> list[list[float]]:
        """Return the log-probability of each token of each continuation, at temperature 1.

        Raises:
            ValueError: A prompt is empty, or longer than the context with what follows, or not of these symbols.
        """
        return [self._score(prompt, continuation) for prompt, continuation in asked]

    def _score(self, prompt: Sequence[int], continuation: Sequence[int]) -> list[float]:
        tokens = [*prompt, *continuation]
        self._check(tokens[: len(prompt)])
        self._check(tokens)
        if not continuation:
            return []
        with torch.inference_mode():
            given_1T = torch.tensor([tokens], device=self._network.device)
            # Logits of the places before each token of the continuation; the last one's, of what would follow, are cut
            # off.
            kept = len(continuation) + 1
            logits_TV = self._network(input_ids=given_1T, use_cache=False, logits_to_keep=kept).logits[0, :-1]
            logprobs_TV = logits_TV.double().log_softmax(-1)
            return [float(x) for x in logprobs_TV.gather(1, given_1T[0, len(prompt) :, None])[:, 0]]

    def drop(self, trace: int) -> None:
        """Forget a trace and its cache; when it is under way, decoding stops.

        Raises:
            ValueError: The trace is unknown.
        """
        self._cache.give_back(self._known(trace).slot)
        self._under_way.pop(trace, None)
        del self._traces[trace]

    def _open(self, tokens: list[int], draw: Draw) -> int:
        self._check(tokens)
        if not 0 <= draw.temperature < math.inf:
            raise ValueError(f"a temperature of {draw.temperature}; 0 or more")
        with torch.inference_mode():
            self._cache.reserve(len(tokens))
            slot = self._cache.take()
        handle = next(self._handles)
        # All at once: the t-th number belongs to the t-th token, however decoding is cut into requests.
        numbers = uniform_numbers(draw.key, self._context - len(tokens))
        self._traces[handle] = Trace(tokens=tokens, slot=slot, temperature=draw.temperature, numbers=numbers)
        return handle

    def _known(self, trace: int) -> Trace:
        if trace not in self._traces:
            raise ValueError(f"no trace {trace}; {len(self._traces)} are open")
        return self._traces[trace]

    def _check(self, tokens: Sequence[int]) -> None:
        if not 1 <= len(tokens) <= self._context:
            raise ValueError(f"{number_of(len(tokens), 'token')}; 1 to {self._context}")
        if not all(0 <= token < self._symbols for token in tokens):
            raise ValueError(f"tokens are 0 to {self._symbols - 1}")

    def _ended(self, trace: Trace) -> bool:
        """Tell whether nothing can follow."""
        says_so = trace.num_decoded > 0 and trace.tokens[-1] in self.end
        return says_so or len(trace.tokens) >= self._context

    def _decode(self, live: Sequence[Trace]) -> None:
        """Append one token to every trace."""
        self._cache.reserve(max(len(trace.tokens) for trace in live))
        # All but the last token: that one goes through the common pass below, which gives every row its logits.
        self._read_beginnings([trace for trace in live if trace.num_cached < len(trace.tokens) - 1])
        starts = [len(trace.tokens) - 1 for trace in live]
        logits_BV = self._pass([t.slot for t in live], starts, [[t.tokens[-1]] for t in live])
        temperatures_B = np.array([t.temperature for t in live])
        numbers_B = np.array([t.numbers[t.num_decoded] for t in live])
        # A network may forbid symbols by minus infinity, whose share of an entropy would not be a number.
        chosen = choose(logits_BV.double().clamp(min=LEAST_LOGIT).cpu().numpy(), temperatures_B, numbers_B)
        if not np.isfinite(chosen.entropies).all():
            raise ArithmeticError(f"logits of {self.identity} are no numbers; a wider dtype may help")
        columns = (chosen.tokens.tolist(), chosen.logprobs.tolist(), chosen.entropies.tolist())
        for trace, token, logprob, entropy in zip(live, *columns, strict=True):
            # Before the new token is appended, whose keys and values no pass has computed.
            trace.num_cached = len(trace.tokens)
            trace.tokens.append(token)
            trace.logprobs.append(logprob)
            trace.entropies.append(entropy)
            trace.num_decoded += 1
            complete = token in trace.stop or self._ended(trace)
            trace.num_wanted = 0 if complete else trace.num_wanted - 1

    def _read_beginnings(self, new: Sequence[Trace]) -> None:
        """Read what is not cached but the last token; the same prompt is read once, and copied for the others."""
        firsts: dict[tuple[int, ...], Trace] = {}
        copies: list[tuple[Trace, Trace]] = []
        to_read: list[Trace] = []
        for trace in new:
            # Only whole beginnings: a trace that continues something cached has its slot's own past.
            first = firsts.setdefault(tuple(trace.tokens[:-1]), trace) if not trace.num_cached else trace
            if first is trace:
                to_read.append(trace)
            else:
                copies.append((first, trace))
        # Chunks of like length share a pass, since all rows are padded to the longest.
        to_read.sort(key=lambda trace: len(trace.tokens) - trace.num_cached)
        while to_read:
            longest = len(to_read[-1].tokens) - 1 - to_read[-1].num_cached
            rows = max(MAX_PREFILL_TOKENS // longest, 1)
            part, to_read = sorted(to_read[-rows:], key=lambda trace: trace.slot), to_read[:-rows]
            chunks = [trace.tokens[trace.num_cached : -1] for trace in part]
            self._pass([t.slot for t in part], [t.num_cached for t in part], chunks)
        # After all reading: the slot that is copied has to be filled.
        for first, trace in copies:
            self._cache.copy(first.slot, trace.slot, len(trace.tokens) - 1)
        for trace in new:
            trace.num_cached = len(trace.tokens) - 1

    def _pass(self, slots: list[int], starts: Sequence[int], chunks: Sequence[Sequence[int]]) -> Tensor:
        """Put chunks of tokens into slots and return the logits behind the last position of the batch, (B, V)."""
        device, longest = self._network.device, max(len(chunk) for chunk in chunks)
        tokens_BT = torch.tensor(
            [[*chunk, *[chunk[0]] * (longest - len(chunk))] for chunk in chunks], device=device
        )
        lengths_B = torch.tensor([len(chunk) for chunk in chunks], device=device)
        offsets_BT = torch.arange(longest, device=device).expand(len(chunks), longest)
        real_BT = offsets_BT < lengths_B[:, None]
        # Padding repeats the chunk's first token in its place: it sees something, and it is never written.
        positions_BT = torch.tensor(starts, device=device)[:, None] + offsets_BT.where(real_BT, 0)
        length = max(start + len(chunk) for start, chunk in zip(starts, chunks, strict=True))
        # Causal and by position: what a slot held before lies at or beyond places that are not written yet, and is
        # hidden too.
        hidden_BTL = torch.arange(length, device=device) > positions_BT[:, :, None]
        dtype = self._network.dtype
        bias_BTL = torch.zeros(hidden_BTL.shape, dtype=dtype, device=device)
        bias_BTL.masked_fill_(hidden_BTL, torch.finfo(dtype).min)
        self._cache.aim(slots, positions_BT, real_BT, length)
        logits: Tensor = self._network(
            input_ids=tokens_BT,
            position_ids=positions_BT,
            attention_mask=bias_BTL[:, None],
            past_key_values=self._cache,
            use_cache=True,
            logits_to_keep=1,
        ).logits[:, -1]
        return logits

    def _piece(self, handle: int, trace: Trace) -> Piece:
        """Return what has not been reported yet."""
        fresh = slice(trace.reported, None)
        # Forced tokens lie before the decoded ones in the same list, and are never reported.
        since = len(trace.tokens) - trace.num_decoded + trace.reported
        trace.reported = trace.num_decoded
        return Piece(
            trace=handle,
            tokens=tuple(trace.tokens[since:]),
            logprobs=tuple(trace.logprobs[fresh]),
            entropies=tuple(trace.entropies[fresh]),
            ended=self._ended(trace),
        )

    def _check_network(self) -> None:
        """Read two texts of different lengths over the cache and plainly.

        Raises:
            UserError: What comes next is not the same.
        """
        length = min(12, self._context)
        # Two lengths in one batch: positions, padding and masks all have to be right for both.
        texts = [
            [(7 * i + 3) % self._symbols for i in range(length)],
            [5 % self._symbols] * (length // 2 + 1),
        ]
        try:
            with torch.inference_mode():
                slots = [self._cache.take(), self._cache.take()]
                self._pass(slots, [0, 0], [text[:-1] for text in texts])
                found_BV = self._pass(slots, [len(text) - 1 for text in texts], [text[-1:] for text in texts])
                for slot in slots:
                    self._cache.give_back(slot)
                plain_BV = torch.stack([self._last_logits(text) for text in texts])
            largest = float(plain_BV.abs().max())
            difference = float((found_BV.double() - plain_BV.double()).abs().max()) / max(largest, 1e-9)
            reason = f"its logits differ by {difference:.1g} of the largest from those of a plain pass"
        except Exception as error:  # of whatever a foreign network does with a cache
            difference, reason = math.inf, f"{type(error).__name__}: {error}"
        if not difference <= MAX_DIFFERENCE.get(self._network.dtype, 0.1):
            raise UserError(
                f"the network cannot be decoded over a cache of keys and values: {reason}",
                where=self._identity,
                expected="a causal transformer with full attention (Llama, Qwen, Mistral, GPT-2 and their like)",
                fix="try attention='eager', or serve the model and use its endpoint",
            )

    def _last_logits(self, text: Sequence[int]) -> Tensor:
        given_1T = torch.tensor([list(text)], device=self._network.device)
        logits: Tensor = self._network(input_ids=given_1T, use_cache=False).logits[0, -1]
        return logits
