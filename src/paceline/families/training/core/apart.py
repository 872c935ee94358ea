"""Processes in which techniques run that are judged by what they want: one plays, another runs them again alone."""

from __future__ import annotations

import hashlib
import os
import pickle
import socket
import traceback
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from paceline.base.errors import PacelineError
from paceline.base.techniques.technique import Technique, UnsupportedError, read_source
from paceline.worker.channel import Channel, ChannelClosedError, close_all
from paceline.worker.fences.guard import ContractBreachError, Guard
from paceline.worker.processes import early_fork, process
from paceline.worker.ranks.loading import allowed_source, load
from paceline.worker.ranks.session import Block, Case, CaseError, Session

LIMIT_S = 600.0
Serve = Callable[[dict[str, Any]], bytes]


class RefusedError(Exception):
    """A technique wanted what it may not have."""


def measure_each(
    session: Session, block: Block, stage: str, measured: Callable[[Case], dict[str, Any]]
) -> None:
    """Measure all techniques of a block whose ranks have nothing to do: rank 0 alone asks their processes.

    Args:
        session: The rank.
        block: The block.
        stage: What the trace calls it that a rank is about to do.
        measured: Returns a technique's result, or raises ``CaseError``.
    """
    if session.rank != 0:
        return
    for case in block.cases:
        session.begin(block, case.label, stage)
        try:
            session.loaded(case)
            session.emit_result(block, case, measured(case))
        except CaseError as error:
            session.emit_failure(block, case, error)
        # Of the machine or of the harness: no failure of one technique, so the launch ends.
        except (MemoryError, PacelineError):
            raise
        except Exception as error:
            detail = traceback.format_exc(limit=8)
            reason = f"{type(error).__name__}: {error}"
            session.emit_failure(block, case, CaseError("crashed", reason, detail))


def technique_of(case: Case) -> Technique:
    """Return what a technique declares, read without importing it: it runs in processes of its own.

    Raises:
        CaseError: Its module does not have it.
    """
    path = allowed_source(case.module, Path.cwd())
    for source in read_source(path, module=case.module):
        if source.info.name == case.technique:
            return source.info
    raise CaseError("crashed", f"the module {case.module} does not have '{case.technique}'")


def ask(serve: Serve, asked: Mapping[str, Any], limit_s: float = LIMIT_S) -> bytes:
    """Let a fork of this process answer; it knows what is asked, and its answer is bytes in memory.

    Raises:
        CaseError: It died, or took too long.
    """
    answer = os.memfd_create("answer")
    question = os.memfd_create("question")
    pid, channel = early_fork.begin(lambda descriptor: _serve(serve, descriptor))
    try:
        with os.fdopen(os.dup(question), "wb") as file:
            file.write(pickle.dumps(dict(asked)))
        channel.send({}, [question, answer])
        channel.receive(limit_s)
        os.lseek(answer, 0, os.SEEK_SET)
        with os.fdopen(os.dup(answer), "rb") as file:
            return file.read()
    except TimeoutError as error:
        raise CaseError("crashed", f"it took longer than {limit_s:.0f} s") from error
    except ChannelClosedError as error:
        raise CaseError("crashed", "its process ended without an answer") from error
    finally:
        close_all([question, answer])
        channel.close()
        with suppress(ProcessLookupError):
            os.kill(pid, 9)
        os.waitpid(pid, 0)


def _serve(serve: Serve, descriptor: int) -> int:
    process.die_with_parent()
    channel = Channel(socket.socket(fileno=descriptor))
    _, (question, answer) = channel.receive()
    os.lseek(question, 0, os.SEEK_SET)
    with os.fdopen(question, "rb") as file:
        asked = pickle.loads(file.read())
    said = serve(asked)
    with os.fdopen(answer, "wb") as file:
        file.write(said)
    channel.send({"done": True})
    return 0


def told_as_failure(act: Callable[[], bytes]) -> bytes:
    """Do something with a technique; what goes wrong is told with a status."""
    try:
        return act()
    except CaseError as error:
        failure = {"status": error.status, "reason": error.reason, "detail": error.detail}
    except (RefusedError, ContractBreachError) as error:
        failure = {"status": "refused", "reason": str(error), "detail": None}
    except UnsupportedError as error:
        failure = {"status": "unsupported", "reason": str(error), "detail": None}
    except Exception as error:  # of the technique: whoever judges writes it down
        reason = f"{type(error).__name__}: {error}"
        failure = {"status": "crashed", "reason": reason, "detail": traceback.format_exc(limit=8)}
    return pickle.dumps({"failure": failure})


def fail(answer: Mapping[str, Any]) -> None:
    """Raise what an answer tells.

    Raises:
        CaseError: What it was asked for was refused, or failed.
    """
    failure = answer.get("failure")
    if failure is not None:
        raise CaseError(failure["status"], failure["reason"], failure["detail"])


def maker(case: Case, guard: Guard) -> Callable[..., Any]:
    """Load a technique, and return what makes it.

    Raises:
        CaseError: It cannot be loaded.
    """
    loaded = load(case.module, case.technique, "training", Path.cwd(), guard)
    if loaded.refusal is not None:
        raise loaded.refusal
    factory: Callable[..., Any] = loaded.factory
    return factory


def digest(request: Any) -> bytes:
    """Return eight bytes that tell what was wanted apart."""
    found = hashlib.blake2b(type(request).__name__.encode(), digest_size=8)
    for name in request.__slots__:
        value = getattr(request, name)
        for part in value if isinstance(value, tuple) else (value,):
            if isinstance(part, np.ndarray):
                found.update(f"{part.dtype.char}{part.shape}".encode())
                found.update(np.ascontiguousarray(part).tobytes())
            else:
                found.update(repr(part).encode())
    return found.digest()


def where_apart(
    run: Generator[Any, Any, Any],
    answers: Sequence[Any],
    wanted: Sequence[bytes],
    as_told: Callable[[Any], Any] = lambda answer: answer,
) -> str | None:
    """Run a generator again on what it was answered; say where it wants something else, or return None.

    Args:
        run: The generator, not yet begun.
        answers: What it was answered, in order.
        wanted: Digests of what it wanted, and ``b"end"`` where it ended.
        as_told: Makes an answer what it was when it was given.
    """
    for turn, before in enumerate(wanted):
        try:
            request = next(run) if turn == 0 else run.send(as_told(answers[turn - 1]))
            now = digest(request)
        except StopIteration:
            now = b"end"
        if now != before:
            return (
                f"what it wanted {turn + 1}th does not follow from what it was told: run again alone, it wants "
                "something else"
            )
    return None
