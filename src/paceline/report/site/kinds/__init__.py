"""Kinds of pages, a module each: adding a kind is adding a module with a ``KIND``."""

from __future__ import annotations

import importlib
import pkgutil

from paceline.report.site.data import PageKind


def page_kinds() -> list[PageKind]:
    """Return the kinds of this folder's modules, those whose jobs take long first."""
    names = sorted(m.name for m in pkgutil.iter_modules(__path__))
    kinds = [importlib.import_module(f"{__name__}.{name}").KIND for name in names]
    assert all(isinstance(kind, PageKind) for kind in kinds), names
    return sorted(kinds, key=lambda kind: kind.place)
