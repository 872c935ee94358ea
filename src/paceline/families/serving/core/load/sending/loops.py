"""The event loop that a client runs on.

What a call costs is what waking up for its pieces costs. asyncio's own loop passes each through a selector, a handle
and a context in Python; uvloop does that in C, at half of the processor time. Where it is not installed the other
serves, with the same log; a log says which it was.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Literal

from paceline.base.errors import PrerequisiteError

LoopName = Literal["uvloop", "asyncio"]


def usual_loop() -> LoopName:
    """Return the fastest loop that is installed."""
    try:
        import uvloop  # noqa: F401, PLC0415 - an optional dependency
    except ImportError:
        return "asyncio"
    return "uvloop"


def loop_factory(name: LoopName) -> Callable[[], asyncio.AbstractEventLoop]:
    """Return what makes a loop.

    Raises:
        PrerequisiteError: uvloop is asked for and not installed.
    """
    if name == "asyncio":
        return asyncio.SelectorEventLoop
    try:
        import uvloop  # noqa: PLC0415 - an optional dependency
    except ImportError as error:
        raise PrerequisiteError(
            "the load generator was asked to run on uvloop", fix="pip install 'paceline[serve]'"
        ) from error
    return uvloop.new_event_loop
