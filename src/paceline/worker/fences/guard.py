"""Keeps a technique inside its contract: no way around the communicator, no hand on the clock, nothing left running.

Four independent fences, because each has holes. The source may import only what a technique needs (``source.py``, read
before it is imported). ``torch.distributed`` is closed while a technique runs. An audit hook refuses sockets,
processes, foreign memory and file writes during a call. After every call, in training after every step, the clocks, the
oracle's entry points and the number of threads must be what they were. Whatever passes all four still meets the
kernel's byte counters in a network namespace.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from paceline.worker.fences.seal import Seal, Tensors, settings

REFUSED_EVENTS = (
    "socket.",
    "subprocess.Popen",
    "os.fork",
    "os.forkpty",
    "os.exec",
    "os.posix_spawn",
    "os.system",
    "os.kill",
    "ctypes.",
    "mmap.__new__",
    "shutil.",
    "sys._current_frames",
    "sys.addaudithook",
    "sys.setprofile",
    "sys.settrace",
    "gc.get_objects",
    "gc.get_referrers",
    "gc.get_referents",
)


SPYING_EVENTS = ("gc.get_", "sys._current_frames", "sys.addaudithook", "socket.connect", "socket.bind")
"""Events that no compiler needs."""


FRAME_ATTRIBUTES = frozenset({"tb_frame", "gi_frame", "cr_frame", "ag_frame"})
FUNCTION_ATTRIBUTES = frozenset({"__code__", "__defaults__", "__kwdefaults__", "__bases__"})


class ContractBreachError(Exception):
    """A technique did something that its contract forbids; its text is the reason in the record."""


class Guard:
    """The fences around techniques of one process; create it before any technique is imported.

    Args:
        sealed: Modules of the harness in which nothing may be replaced.
        threads: Whether threads that come while a technique is watched are held to its rules, however it has found a
            way to start them: where nothing of its family's ``api`` starts any.
        tensors: Whether the process computes with tensors: PyTorch's functions, kernels and settings must stay as
            they were, too. Otherwise PyTorch is not imported.
    """

    def __init__(
        self, sealed: Sequence[ModuleType] = (), *, threads: bool = False, tensors: bool = True
    ) -> None:
        self._tensors = _tensors() if tensors else None
        self._seal = Seal(sealed, tensors=self._tensors)
        self._seldom: Seal | None = None
        self._active = threading.local()
        self._holds_threads, self._own_threads = threads, _threads()
        self._num_watched = 0
        self._builds = self._uses_library = False
        self._breach_elsewhere: str | None = None
        """What was tried in a thread that a technique has started."""
        self._before: tuple[int, dict[str, Any]] = (0, {})
        self._replaced: list[str] = []
        self._closed = self._tensors.entry_points() if self._tensors else []
        sys.addaudithook(self._audit)

    def seal(
        self,
        modules: Sequence[ModuleType],
        *,
        in_time: Sequence[ModuleType] | None = None,
        seldom: Sequence[ModuleType] = (),
    ) -> None:
        """Let nothing be replaced in more modules; call it before any technique of their family is imported.

        Args:
            modules: Looked at after every call.
            in_time: Those of them that are looked at after calls whose check is itself in time that is measured
                (``watch``); None: all.
            seldom: Looked at in ``check`` alone, for what is too much to be looked at in time that is measured.
        """
        self._seal.add(modules, in_time=in_time)
        if seldom:
            self._seldom = self._seldom or Seal(tensors=self._tensors)
            self._seldom.add(seldom)

    @contextmanager
    def watch(
        self, *, building: bool = False, library: bool = False, in_time: bool = False
    ) -> Iterator[None]:
        """Run a technique's code inside the fences.

        Args:
            building: A compiler may run: it starts processes and writes its caches. Never while calls are timed.
            library: PyTorch's own modules may use ``torch.distributed``, for techniques that stand for the library.
            in_time: The check is in time that is measured: it looks at what the call rests on. ``check`` has to follow
                before anything else is used.

        Raises:
            ContractBreachError: It tried something forbidden, even when it swallowed the refusal.
        """
        self.open(building=building)
        self._active.library = self._uses_library = library
        try:
            yield
        except BaseException:
            self.close()
            if self._seldom:
                self._seldom.restore()
            raise
        finally:
            self.close()
            # also when it raises: the next technique is not to blame
            self._replaced = self._seal.restore(in_time=in_time and sys.exc_info()[0] is None)
        self._judge()

    @contextmanager
    def between(self) -> Iterator[None]:
        """Judge inside ``watch`` what was done so far, do the harness's own work, and watch on.

        Raises:
            ContractBreachError: As ``watch``.
        """
        building, library = self._active.building, self._active.library
        self.close()
        self.check()
        yield
        self.open(building=building)
        self._active.library = self._uses_library = library

    @contextmanager
    def outside(self) -> Iterator[None]:
        """Do the harness's own work while a technique waits for it: nothing of it is held against the technique."""
        was, before = getattr(self._active, "on", False), _threads()
        self._active.on = False
        # Threads that come now are the harness's.
        self._num_watched -= was
        try:
            yield
        finally:
            self._num_watched += was
            after = _threads()
            self._own_threads |= after - before
            started = len(after) - len(before)
            self._before = (self._before[0] + started, self._before[1])
            self._active.on = was

    def open(self, *, building: bool = False) -> None:
        """Begin to watch; ``watch`` in three steps, for who has to answer before there is time for checks."""
        self._before = (threading.active_count(), self._settings())
        if not self._num_watched:
            # Nothing of a technique's runs now: whoever is there is the harness's, and whoever comes is not.
            self._own_threads = _threads()
        self._num_watched += not getattr(self._active, "on", False)
        self._active.breach = None
        self._active.building = self._builds = building
        self._active.library = self._uses_library = False
        self._active.on = True

    def close(self) -> None:
        """Stop watching: the technique's code has ended, or raised."""
        self._num_watched -= getattr(self._active, "on", False)
        self._active.on = False

    def forget(self) -> None:
        """Put back what was replaced since the last look, where the technique has failed for another reason."""
        self._seal.restore()
        if self._seldom:
            self._seldom.restore()
        self._replaced = []

    def check(self) -> None:
        """Judge what was watched.

        Raises:
            ContractBreachError: It tried something forbidden, even when it swallowed the refusal.
        """
        self._replaced += self._seal.restore() + (self._seldom.restore() if self._seldom else [])
        self._judge()

    def _judge(self) -> None:
        replaced, self._replaced = self._replaced, []
        threads, before = self._before
        elsewhere, self._breach_elsewhere = self._breach_elsewhere, None
        if self._active.breach is not None or elsewhere is not None:
            raise ContractBreachError(self._active.breach or elsewhere or "")
        if replaced:
            raise ContractBreachError(f"it replaced {', '.join(replaced)}")
        if threading.active_count() > threads and not self._active.building:
            raise ContractBreachError("it left a thread running after its call returned")
        after = self._settings()
        changed = next((key for key, value in before.items() if after[key] != value), None)
        if changed:
            raise ContractBreachError(f"it changed the global setting {changed}")

    def _settings(self) -> dict[str, Any]:
        """Return the settings of this process that one technique could leave to another."""
        return {**(self._tensors.settings() if self._tensors else {}), **settings()}

    def check_operators(self) -> None:
        """Look at the kernels behind the operators that the harness computes with; slower than what ``watch`` does.

        Raises:
            ContractBreachError: Somebody replaced one.
        """
        operator = self._seal.replaced_operator()
        if operator is not None:
            raise ContractBreachError(f"it replaced the operator {operator}")

    def close_distributed(self) -> None:
        """Replace the entry points of ``torch.distributed`` so that only the harness's own bindings work."""
        for owner, name in self._closed:
            setattr(owner, name, self._gate(getattr(owner, name), f"torch.distributed.{name}"))

    def _gate(self, function: Callable[..., Any], name: str) -> Callable[..., Any]:
        def gated(*args: Any, **kwargs: Any) -> Any:
            library = getattr(self._active, "library", self._uses_library)
            if self._is_watched() and not library:
                self._refuse(f"it called {name} instead of its communicator")
            return function(*args, **kwargs)

        return gated

    def _refuse(self, reason: str) -> None:
        if self._is_foreign():
            self._breach_elsewhere = self._breach_elsewhere or f"in a thread of its own {reason}"
        self._active.breach = getattr(self._active, "breach", None) or reason
        raise ContractBreachError(reason)

    def _is_foreign(self) -> bool:
        """Tell whether this thread came while a technique was watched: it has started it, however it found a way."""
        return (
            self._holds_threads and self._num_watched > 0 and threading.get_ident() not in self._own_threads
        )

    def _is_watched(self) -> bool:
        return getattr(self._active, "on", False) or self._is_foreign()

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self._is_watched():
            return
        if event == "open" and str(arguments[0]).endswith("environ"):
            self._refuse(
                f"it opened {arguments[0]!r}"
            )  # keys stay there after they were taken out of the environment
        if getattr(self._active, "building", self._builds):
            if event.startswith(SPYING_EVENTS):
                self._refuse(f"it triggered {event}")
            return
        if event == "open" and isinstance(arguments[1], str) and set(arguments[1]) & set("wax+"):
            self._refuse(f"it opened {arguments[0]!r} for writing")
        if event == "open" and arguments[1] is None and int(arguments[2]) & (os.O_WRONLY | os.O_RDWR):
            self._refuse(f"it opened {arguments[0]!r} for writing")
        if event.startswith(REFUSED_EVENTS):
            self._refuse(f"it triggered {event}")
        if event == "object.__getattr__" and arguments[1] in FRAME_ATTRIBUTES:
            self._refuse(f"it read {arguments[1]}")
        if event == "object.__setattr__" and arguments[1] in FUNCTION_ATTRIBUTES:
            self._refuse(f"it replaced the {arguments[1]} of {arguments[0]!r}")


def _tensors() -> Tensors:
    from paceline.worker.fences import tensors  # noqa: PLC0415 - it imports torch, which not every process needs

    return tensors


def _threads() -> set[int]:
    """Return the threads that Python knows of; ``threading.enumerate`` would take a lock that the caller may hold."""
    return set(threading._active)  # type: ignore[attr-defined]
