"""What models are trained on: a synthetic language whose entropy rate is known, or bytes of files or of a dataset.

A corpus draws the sequences of a step from a seed and the step's number alone, so that every technique and every
number of ranks sees the same global batches in the same order.
"""

from __future__ import annotations

import hashlib
import stat
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from paceline.base.counting import number_of
from paceline.families.training.api.sizes import BYTE_VALUES, DIALECTS, MARKOV, VOCABULARY
from paceline.families.training.core import hub
from paceline.families.training.core.planning.parameters import shift_of
from paceline.worker.ranks.session import CaseError

LANGUAGE_SEED = 20260
PAIR_STRENGTH = 1.5
TRIPLE_STRENGTH = 1.0
"""Standard deviations of the logits that the last symbol, and the last two together, give to the next."""
HELD_OUT_SHARE = 10
"""One file in this many is held out, or one block of a file that is alone."""
MAX_BYTES = 64 << 20
LEAST_BYTES = 1 << 16
STATIONARY_ROUNDS = 500
NUM_DIALECTS = 4

Sequences = NDArray[np.int64]


class Corpus(Protocol):
    """A source of sequences."""

    @property
    def vocabulary(self) -> int:
        """Number of symbols."""
        ...

    @property
    def entropy_rate(self) -> float | None:
        """Nats per symbol that no model can undercut; None where it is unknown."""
        ...

    @property
    def fingerprint(self) -> str:
        """SHA-256 of what the sequences are drawn from."""
        ...

    def train(self, seed: int, step: int, rows: range, batch: int, length: int) -> Sequences:
        """Return some rows of a step's global batch, (rows, length)."""
        ...

    def held_out(self, seed: int, count: int, length: int) -> Sequences:
        """Return sequences that ``train`` never gives, (count, length)."""
        ...


@dataclass(frozen=True, slots=True)
class Markov:
    """A chain of order two over 64 symbols: P(c | a, b) ∝ exp(1.5·G(b, c) + G'(a, b, c)), G and G' standard normal.

    A model learns the dependence on the last symbol soon and that on the last two slowly, so that loss goes on falling
    for as long as anybody trains here. A shifted language is P · exp(shift·G″(c)), normalised.
    """

    vocabulary: int
    entropy_rate: float
    fingerprint: str
    cumulative: NDArray[np.float64]
    """P(≤ c | a, b), (V·V, V)."""
    start: NDArray[np.float64]
    """Cumulative stationary probability of pairs, (V·V,)."""

    def train(self, seed: int, step: int, rows: range, batch: int, length: int) -> Sequences:
        """Return some rows of a step's global batch."""
        return self.draw(np.random.Philox(key=[seed, 2 * step]), batch, length, rows)

    def held_out(self, seed: int, count: int, length: int) -> Sequences:
        """Return sequences under a key that no step has (those of steps are even)."""
        return self.draw(np.random.Philox(key=[seed, 1]), count, length, range(count))

    def draw(self, bits: np.random.Philox, count: int, length: int, rows: Sequence[int]) -> Sequences:
        """Return some rows of as many sequences as are drawn, (rows, length)."""
        # The whole global batch is drawn and then cut: a row does not depend on
        # who reads it, nor on how many ranks there are.
        uniform = np.random.Generator(bits).random((count, length))[np.asarray(rows, dtype=np.int64)]
        symbols = np.empty(uniform.shape, dtype=np.int64)
        # The last cumulative sum may lie a rounding error below 1, and a draw above it.
        pair = np.minimum(np.searchsorted(self.start, uniform[:, 0]), len(self.start) - 1)
        symbols[:, 0], symbols[:, 1] = pair // self.vocabulary, pair % self.vocabulary
        for place in range(2, length):
            # Inverse of the distribution function by counting: all rows at once,
            # and the same symbols for any split into rows.
            below = self.cumulative[pair] < uniform[:, place, None]
            drawn = np.minimum(below.sum(axis=1), self.vocabulary - 1)
            symbols[:, place] = drawn
            pair = pair % self.vocabulary * self.vocabulary + drawn
        return symbols


@dataclass(frozen=True, slots=True)
class Dialects:
    """Four shifted languages: row r of a batch, and of what is held out, is of dialect r mod 4.

    Of four ranks each reads a dialect of its own, of two ranks each reads two: who sends nothing never hears the
    others'. No model undercuts the mean of the entropy rates, which it comes near once it has told the dialect.
    """

    each: tuple[Markov, ...]

    @property
    def vocabulary(self) -> int:
        """Number of symbols."""
        return self.each[0].vocabulary

    @property
    def entropy_rate(self) -> float:
        """The mean of the dialects'."""
        return sum(one.entropy_rate for one in self.each) / len(self.each)

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the dialects'."""
        return hashlib.sha256("".join(one.fingerprint for one in self.each).encode()).hexdigest()

    def train(self, seed: int, step: int, rows: range, batch: int, length: int) -> Sequences:
        """Return some rows of a step's global batch."""
        return self._draw((seed, 2 * step), batch, length, rows)

    def held_out(self, seed: int, count: int, length: int) -> Sequences:
        """Return sequences of all dialects, under a key that no step has."""
        return self._draw((seed, 1), count, length, range(count))

    def _draw(self, key: tuple[int, int], count: int, length: int, rows: range) -> Sequences:
        found = np.empty((len(rows), length), dtype=np.int64)
        dialects = np.asarray(rows, dtype=np.int64) % len(self.each)
        for number, one in enumerate(self.each):
            mine = np.flatnonzero(dialects == number)
            if len(mine):
                chosen = [rows[place] for place in mine]
                found[mine] = one.draw(np.random.Philox(key=list(key)), count, length, chosen)
        return found


@lru_cache(maxsize=2)
def dialects(shift: float) -> Dialects:
    """Return four dialects of the synthetic language.

    Args:
        shift: How far they are apart: see ``markov``.
    """
    return Dialects(tuple(markov(shift=shift, dialect=number) for number in range(NUM_DIALECTS)))


@lru_cache(maxsize=2 + NUM_DIALECTS)
def markov(vocabulary: int = VOCABULARY, shift: float = 0.0, dialect: int = 0) -> Markov:
    """Return the synthetic language; its entropy rate is Σ π(a, b)·H(P(· | a, b)), π by power iteration.

    Args:
        vocabulary: V.
        shift: Standard deviation of the logits that a symbol gains or loses wherever it may follow; 0 is the language
            itself.
        dialect: Which shift of that size, from 0 on.
    """
    random = np.random.Generator(np.random.Philox(key=[LANGUAGE_SEED, vocabulary]))
    pairs = random.standard_normal((1, vocabulary, vocabulary))
    triples = random.standard_normal((vocabulary, vocabulary, vocabulary))
    logits = PAIR_STRENGTH * pairs + TRIPLE_STRENGTH * triples
    # Drawn after the language's own numbers, so that the language without a shift is the same as ever.
    if shift:
        logits += shift * random.standard_normal((1 + dialect, 1, 1, vocabulary))[dialect]
    chance = np.exp(logits)
    chance /= chance.sum(axis=2, keepdims=True)
    stationary = np.full((vocabulary, vocabulary), 1.0 / vocabulary**2)
    # All chances are positive, so the chain mixes and power iteration converges to its one stationary distribution.
    for _ in range(STATIONARY_ROUNDS):
        following = np.einsum("ab,abc->bc", stationary, chance)
        # The same to the last bit, as after some ninety rounds: all further ones would be.
        if np.array_equal(following, stationary):
            break
        stationary = following
    conditional = -(chance * np.log(chance)).sum(axis=2)
    return Markov(
        vocabulary=vocabulary,
        entropy_rate=float((stationary * conditional).sum()),
        fingerprint=hashlib.sha256(chance.tobytes()).hexdigest(),
        cumulative=chance.reshape(-1, vocabulary).cumsum(axis=1),
        start=stationary.reshape(-1).cumsum(),
    )


@dataclass(frozen=True, slots=True)
class Bytes:
    """Bytes of files, cut into sequences at random places."""

    vocabulary: int
    entropy_rate: None
    fingerprint: str
    text: NDArray[np.uint8]
    kept: NDArray[np.uint8]

    def train(self, seed: int, step: int, rows: range, batch: int, length: int) -> Sequences:
        """Return some rows of a step's global batch."""
        return self._cut(self.text, np.random.Philox(key=[seed, step]), batch, length, rows)

    def held_out(self, seed: int, count: int, length: int) -> Sequences:
        """Return sequences from the files that were held out."""
        return self._cut(self.kept, np.random.Philox(key=[seed, 0]), count, length, range(count))

    def _cut(
        self, text: NDArray[np.uint8], bits: np.random.Philox, count: int, length: int, rows: range
    ) -> Sequences:
        # Again all of the batch, of which a rank keeps its rows.
        starts = np.random.Generator(bits).integers(0, len(text) - length, count)
        chosen = starts[rows.start : rows.stop : rows.step]
        found: Sequences = text[chosen[:, None] + np.arange(length)].astype(np.int64)
        return found


@lru_cache(maxsize=2)
def file_bytes(path: str | None) -> Bytes:
    """Read a file, the files below a folder, or the running Python's standard library, up to 64 MiB.

    Files are read in the order of their names, and every tenth is held out; of a file alone every tenth 64 KiB are.

    Raises:
        CaseError: ``invalid``: there is no such file or folder, it cannot be read, or it holds too little.
    """
    root = Path(path) if path else Path(sysconfig.get_path("stdlib"))
    parts: tuple[list[bytes], list[bytes]] = ([], [])
    total = 0
    try:
        files = _files(root, "*" if path else "*.py")
        for number, text in enumerate(_texts(root, files)):
            # Whole files, not places in one text: sequences overlap, and a
            # held-out one must share no byte with training.
            parts[number % HELD_OUT_SHARE == 0].append(text)
            total += len(text)
            if total >= MAX_BYTES:
                break
    except OSError as error:
        reason = f"data: {error.filename or root} cannot be read: {error.strerror}"
        raise CaseError("invalid", reason) from error
    count = "" if files is None else f", {number_of(len(files), 'file')},"
    return _bytes(b"".join(parts[0]), b"".join(parts[1]), f"{root}{count}")


def _files(root: Path, pattern: str) -> list[Path] | None:
    """List the files below a folder, in order; None for a file.

    Raises:
        CaseError: ``invalid``: it is not there, or neither; of a pipe one rank alone could read.
    """
    try:
        mode = root.stat().st_mode
    except (FileNotFoundError, NotADirectoryError) as error:
        raise CaseError("invalid", f"data: there is no file or folder {root}") from error
    if stat.S_ISREG(mode):
        return None
    if not stat.S_ISDIR(mode):
        raise CaseError("invalid", f"data: {root} is neither a file nor a folder")
    # Not the same in every installation of one Python, and the fingerprint is of what is read.
    skipped = {"site-packages", "dist-packages", "__pycache__", "test", "tests"}
    return sorted(
        p for p in root.rglob(pattern) if p.is_file() and skipped.isdisjoint(p.relative_to(root).parts)
    )


def _texts(root: Path, files: Iterable[Path] | None) -> Iterator[bytes]:
    """Yield the contents of files, or one file's in blocks."""
    if files is not None:
        yield from (path.read_bytes() for path in files)
        return
    with root.open("rb") as file:
        while block := file.read(LEAST_BYTES):
            yield block


@lru_cache(maxsize=2)
def hub_bytes(name: str) -> Bytes:
    """Read a dataset's training split, every tenth row held out, up to 64 MiB.

    Raises:
        CaseError: ``invalid``: it cannot be read, or holds too little.
    """
    try:
        train, kept = hub.cached(name)
    except hub.HubError as error:
        raise CaseError("invalid", f"data: {error}") from error
    return _bytes(train, kept, name)


def _bytes(train: bytes, kept: bytes, name: str) -> Bytes:
    if min(len(train), len(kept)) < LEAST_BYTES:
        text = f"data: {name} has {len(train)} bytes to train and {len(kept)} to judge; 64 KiB of each are needed"
        raise CaseError("invalid", text)
    # Both parts: ranks with equal training text and another held-out text would judge differently.
    digest = hashlib.sha256(train)
    digest.update(kept)
    return Bytes(
        vocabulary=BYTE_VALUES,
        entropy_rate=None,
        fingerprint=digest.hexdigest(),
        text=np.frombuffer(train, dtype=np.uint8),
        kept=np.frombuffer(kept, dtype=np.uint8),
    )


def load(data: str) -> Corpus:
    """Return the corpus that a point names: markov, dialects:SHIFT, bytes, bytes:PATH, hf:NAME@REVISION or hf:FOLDER.

    Raises:
        CaseError: ``invalid``: its text cannot be read, or is too short.
    """
    kind, _, name = data.partition(":")
    if kind == MARKOV:
        return markov()
    if kind == DIALECTS:
        shift = shift_of(name)
        assert shift is not None, "points with other data are no points"
        return dialects(shift)
    return hub_bytes(name) if kind == "hf" else file_bytes(name or None)
