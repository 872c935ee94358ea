"""Parses Python without looking for garbage meanwhile.

Checks of the source parse some 130 000 lines each. The collector of garbage goes through what is being built again and
again: it makes that four times as long.
"""

from __future__ import annotations

import ast
import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def _no_garbage() -> Iterator[None]:
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def tree_of(source: str | bytes) -> ast.Module:
    """Return what ``ast.parse`` does."""
    with _no_garbage():
        return ast.parse(source)


def nodes_of(source: str | bytes) -> list[ast.AST]:
    """Return every node of a source, in the order of ``ast.walk``, which takes longer."""
    with _no_garbage():
        found: list[ast.AST] = [ast.parse(source)]
        for node in found:
            for value in vars(node).values():
                if isinstance(value, ast.AST):
                    found.append(value)
                elif type(value) is list:
                    found.extend(part for part in value if isinstance(part, ast.AST))
        return found
