"""A process that compares formulas by ``math-verify``, and workers of it that are killed when a comparison hangs.

The library sets its time limits by signals, which work in a process's main thread only and do not interrupt one long
operation on whole numbers. So the caller starts one process, which loads the library and forks a worker; whatever a
worker has not done in time is reported as such, the worker is killed, and the next one is forked, ready at once. The
caller itself starts nothing more and has no threads. When the caller ends, however it ends, the process reads the end
of its input and ends too; the kernel kills its worker with it.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import logging
import multiprocessing
import os
import re
import resource
import select
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any

from paceline.base.errors import InfrastructureError, PrerequisiteError
from paceline.families.reasoning.core.grading.formula_checks import are_one_function, are_too_far
from paceline.worker.processes.process import die_with_parent

MODULE = "paceline.families.reasoning.core.grading.service"
INSTALL = "pip install 'paceline[math]'"
START_LIMIT_S = 120.0
END_LIMIT_S = 10.0
SLACK_S = 30.0
"""Beyond the sum of its calls' limits, after which a batch's process counts as lost."""
MEMORY_BYTES = 8 << 30
"""Address space of a worker: a number that does not fit is a failure and not the machine's end."""
STDIN = 0
_OR = re.compile(r"\\text\s*\{\s*or\s*\}|\\(?:lor|vee)(?![A-Za-z])|\bor\b")

Call = tuple[str, str, str]
"""``equal``, a truth and an answer; or ``extract``, a text and nothing."""
Answer = tuple[str, Any]
"""``ok`` and the result; or ``timeout`` or ``failure``, and what happened."""


class Service:
    """The process, as its caller sees it.

    Args:
        timeout_s: Of one call.

    Raises:
        PrerequisiteError: The library is not installed.
        InfrastructureError: The process does not start.
    """

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._read = b""
        self._process = subprocess.Popen(
            [sys.executable, "-m", MODULE, str(timeout_s)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            # Symbolic simplification goes through sets: with one order of hashes equal pairs get equal verdicts.
            env={**os.environ, "PYTHONHASHSEED": "0"},
            start_new_session=True,  # an interrupt at the keyboard is the caller's to handle
        )
        try:
            ready = self._line(START_LIMIT_S)
        except BaseException:
            self.close()
            raise
        if ready != "ready":
            self.close()
            raise PrerequisiteError(f"grading formulas needs the package math-verify: {ready}", fix=INSTALL)

    def run(self, calls: Sequence[Call]) -> list[Answer]:
        """Return what each call gave, in their order.

        Raises:
            InfrastructureError: The process was lost.
        """
        if not calls:
            return []
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(list(calls)).encode() + b"\n")
            self._process.stdin.flush()
            # Every call may use its limit and a new worker behind it; beyond that the process itself is lost.
            answers = self._line(len(calls) * (self._timeout_s + 1) + SLACK_S)
        except BrokenPipeError:
            self.close()
            raise InfrastructureError("the grading process was lost") from None
        except BaseException:  # an answer that nobody waits for would be taken for the next batch's
            self.close()
            raise
        return [(str(kind), value) for kind, value in answers]

    def close(self) -> None:
        """End the process and its worker."""
        assert self._process.stdin is not None and self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(END_LIMIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()  # the kernel kills the worker with it
            self._process.wait()
        self._process.stdout.close()

    def _line(self, limit_s: float) -> Any:
        """Return the next line that the process wrote, decoded."""
        assert self._process.stdout is not None
        output, until = self._process.stdout.fileno(), time.monotonic() + limit_s
        while b"\n" not in self._read:
            ready, _, _ = select.select([output], [], [], max(until - time.monotonic(), 0.0))
            part = os.read(output, 1 << 16) if ready else b""
            if not part:
                said = "ended" if ready else f"did not answer within {limit_s:g} s"
                raise InfrastructureError(
                    f"the grading process {said}; its exit code: {self._process.poll()}"
                )
            self._read += part
        line, _, self._read = self._read.partition(b"\n")
        return json.loads(line)


class Worker:
    """A forked process that does one call after another, and the limit of each."""

    def __init__(self, work: Callable[[Connection], None], timeout_s: float) -> None:
        self._work, self._timeout_s = work, timeout_s
        self._start()

    def call(self, call: Call) -> Answer:
        """Return what a call gave; a worker that hangs or dies is replaced."""
        try:
            self._pipe.send(call)
            # Standard input as well, so that the end of the caller is seen in the middle of a call.
            ready = wait([self._pipe, STDIN], self._timeout_s)
            if STDIN in ready:  # the caller sends nothing while it waits, so it has ended
                self._process.kill()
                self._process.join()
                sys.exit(1)
            if ready:
                answer: Answer = self._pipe.recv()
                return answer
            ending: Answer = ("timeout", f"not done within {self._timeout_s:g} s")
        except (EOFError, OSError):
            ending = ("failure", "the worker died")
        self._process.kill()
        self._process.join()
        self._pipe.close()
        self._start()
        return ending

    def _start(self) -> None:
        # Forked from a process that has loaded the library: a new worker is ready at once.
        context = multiprocessing.get_context("fork")
        self._pipe, far = context.Pipe()
        self._process = context.Process(target=_begin, args=(self._work, far, self._pipe), daemon=True)
        self._process.start()
        far.close()


def _begin(work: Callable[[Connection], None], pipe: Connection, near: Connection) -> None:
    """Set a forked worker up and let it work."""
    die_with_parent()
    # The copied near end would keep the pipe open, and the worker would never read its end.
    near.close()
    # A worker that reads the caller's requests or prints among the answers would break the protocol.
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    work(pipe)


def work(pipe: Connection) -> None:
    """Do calls until there are no more."""
    while True:
        try:
            name, first, second = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send(("ok", _equal(first, second) if name == "equal" else _extract(first)))
        except Exception as error:  # of sympy or a parser, on whatever a model wrote
            pipe.send(("failure", f"{type(error).__name__}: {error}"[:500]))


def _equal(truth: str, answer: str) -> bool:
    """Compare two formulas; what cannot be parsed is compared as text."""
    library: Any = importlib.import_module("math_verify")
    given = [
        library.parse(rf"\boxed{{{text}}}", parsing_timeout=None, raise_on_error=True)
        for text in (truth, answer)
    ]
    # Of "x > 3" and an interval each is the other, whichever is the truth.
    options = {"allow_set_relation_comp": True, "timeout_seconds": None, "raise_on_error": True}
    equal = bool(library.verify(*given, **options))
    if not all(given):
        return equal
    one, other = given[0][0], given[1][0]
    if equal:
        return not are_too_far(one, other)
    return are_one_function(one, other) or _are_one_set(truth, answer)


def _are_one_set(truth: str, answer: str) -> bool:
    """Tell whether relations that "or" joins are the set that the other side is, or its relations."""
    if not any(_OR.search(side) for side in (truth, answer)):
        return False
    library: Any = importlib.import_module("math_verify")
    sympy: Any = importlib.import_module("sympy")
    sets = []
    for side in (truth, answer):
        parts = [library.parse(rf"\boxed{{{part}}}", parsing_timeout=None)[:1] for part in _OR.split(side)]
        found = [part[0].as_set() if hasattr(part[0], "as_set") else part[0] for part in parts if part]
        if len(found) != len(parts) or not all(isinstance(one, sympy.Set) for one in found):
            return False
        sets.append(sympy.Union(*found))
    return bool(sets[0] == sets[1])


def _extract(text: str) -> str | None:
    """Return the text of the formula that a text without a box answers by."""
    library: Any = importlib.import_module("math_verify")
    found = library.parse(text, parsing_timeout=None, raise_on_error=True)
    return next((part for part in reversed(found) if isinstance(part, str)), None)


def serve(timeout_s: float, work: Callable[[Connection], None] = work) -> None:
    """Answer batches from standard input until it ends."""
    try:
        importlib.import_module("math_verify")
    except ImportError as error:
        print(json.dumps(str(error)), flush=True)
        return
    logging.disable(logging.WARNING)
    worker = Worker(work, timeout_s)
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        print(json.dumps([worker.call((name, a, b)) for name, a, b in json.loads(line)]), flush=True)


if __name__ == "__main__":
    serve(float(sys.argv[1]))
