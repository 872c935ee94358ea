"""One hook for the audit events of a whole test process, whoever asks for one: Python forgets none that was added.

Each guard of techniques adds a hook for good, which is right in a rank: it has one guard. A process that runs thousands
of tests has hundreds of them, and each file that is opened and each module that is imported would go through all.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Hook = Callable[[str, tuple[Any, ...]], None]


class AuditHooks:
    """Hooks that were asked for; those of objects that are gone are forgotten."""

    def __init__(self) -> None:
        self._hooks: tuple[Callable[[], Hook | None], ...] = ()

    def add(self, hook: Hook) -> None:
        """Hear audit events, as after ``sys.addaudithook``; asking for it is such an event itself.

        A method is heard for as long as its object lives.
        """
        sys.audit("sys.addaudithook")
        held = weakref.WeakMethod(hook) if hasattr(hook, "__self__") else lambda: hook
        self._hooks = (*(h for h in self._hooks if h() is not None), held)

    def hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Pass an event on."""
        for held in self._hooks:
            if (hook := held()) is not None:
                hook(event, arguments)

    def __len__(self) -> int:
        return sum(held() is not None for held in self._hooks)


@contextmanager
def one_for_all() -> Iterator[AuditHooks]:
    """Let this process have one hook in the place of all that are added meanwhile."""
    hooks = AuditHooks()
    add = sys.addaudithook
    add(hooks.hear)
    sys.addaudithook = hooks.add  # type: ignore[assignment]
    try:
        yield hooks
    finally:
        sys.addaudithook = add
