"""What a mapping may hold, said once as a frozen dataclass, and what is wrong with a mapping that does not fit it.

Operations declare so what a technique may promise and require. Accepted annotations: ``bool``, ``int``, ``float``
(which takes whole numbers, too), ``str``, ``None``, ``Literal``, ``tuple[X, ...]`` (which takes lists, too),
``Mapping[str, X]``, another such dataclass, and unions of these. Keys that are an ``OptionName`` or an ``ArgumentName``
are names of the technique's own, and held against its constructor.
"""

from __future__ import annotations

import dataclasses
import math
import types
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cache
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from paceline.base.errors import UserError, expected_one_of

Kind = TypeVar("Kind")
Place = Callable[[str], str]
"""Returns ``file:line:key`` of a key; keys of a mapping inside a mapping are joined by ``.``."""

OPTION, ARGUMENT = "option", "argument"
OptionName = Annotated[str, OPTION]
"""The name of an option of the technique: what suites may set."""
ArgumentName = Annotated[str, ARGUMENT]
"""The name of an argument of the technique's constructor, an option or not."""
Names = Mapping[str, Collection[str]]
"""The technique's names of each kind; a kind whose names nobody knows is left out."""

_WORDS = {
    bool: "True or False",
    int: "a whole number",
    float: "a number",
    str: "a text",
    types.NoneType: "None",
}


def field_types(kind: type) -> Mapping[str, Any]:
    """Return the annotation of each field of a declaration, in its order."""
    return _field_types(kind)


@cache
def _field_types(kind: type) -> Mapping[str, Any]:
    hints = get_type_hints(kind, include_extras=True)
    return {f.name: hints[f.name] for f in dataclasses.fields(kind)}


def mistakes(
    given: Mapping[str, Any],
    kinds: Sequence[type],
    *,
    noun: str,
    whose: str,
    at: Place,
    names: Names = types.MappingProxyType({}),
) -> Iterator[UserError]:
    """Yield what is wrong with a mapping that must fit at least one of several declarations, key by key.

    Args:
        given: The mapping; its keys may be spread over the declarations.
        kinds: Declarations: a key is known when one has it, and well typed when one accepts its value.
        noun: What a key is, such as ``property``.
        whose: Who does not know a key, with its verb: ``techniques of gemm have``.
        at: The place of a key.
        names: The technique's own names, which keys inside values may have to be.
    """
    known: dict[str, list[Any]] = {}
    for kind in kinds:
        for name, annotation in field_types(kind).items():
            known.setdefault(name, []).append(annotation)
    for key, value in given.items():
        if key not in known:
            yield UserError(
                f"{whose} no {noun} '{key}'", where=at(key), expected=expected_one_of(str(key), known)
            )
        elif not any(accepts(value, annotation) for annotation in known[key]):
            yield from _misfit(key, value, known[key][0], noun=noun, at=at)
        else:
            annotation = next(a for a in known[key] if accepts(value, a))
            yield from _strange_names(key, value, annotation, what=f"the {noun} '{key}'", at=at, names=names)


def _strange_names(
    key: str, value: object, annotation: Any, *, what: str, at: Place, names: Names
) -> Iterator[UserError]:
    """Yield the keys inside a well-typed value that should be names of the technique's own and are not."""
    if not isinstance(value, Mapping):
        return
    arguments = get_args(annotation)
    if dataclasses.is_dataclass(annotation):
        assert isinstance(annotation, type)
        for name, inner in field_types(annotation).items():
            if name in value:
                yield from _strange_names(f"{key}.{name}", value[name], inner, what=what, at=at, names=names)
    elif get_origin(annotation) in (Union, types.UnionType):
        fitting = next(a for a in arguments if accepts(value, a))
        yield from _strange_names(key, value, fitting, what=what, at=at, names=names)
    elif get_origin(arguments[0]) is Annotated and (called := get_args(arguments[0])[1]) in names:
        known = names[called]
        for name in value:
            if name not in known:
                yield UserError(
                    f"{what} names '{name}', which is no {called} of the technique",
                    where=at(f"{key}.{name}"),
                    expected=expected_one_of(str(name), known),
                )


def accepts(value: object, annotation: Any) -> bool:
    """Tell whether a literal value fits an annotation."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if annotation is Any:
        return True
    if origin in (Union, types.UnionType):
        return any(accepts(value, a) for a in arguments)
    if origin is Literal:
        return any(value == a and type(value) is type(a) for a in arguments)
    if origin is tuple:
        return isinstance(value, tuple | list) and all(accepts(v, arguments[0]) for v in value)
    if origin is not None and issubclass(origin, Mapping):
        return isinstance(value, Mapping) and all(
            accepts(k, arguments[0]) and accepts(v, arguments[1]) for k, v in value.items()
        )
    if dataclasses.is_dataclass(annotation):
        assert isinstance(annotation, type)
        return (
            isinstance(value, Mapping)
            and not any(mistakes(value, [annotation], noun="key", whose="", at=str))
            and not missing(value, annotation)
        )
    if origin is Annotated:
        return accepts(value, arguments[0])
    if annotation is float:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if annotation is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, annotation)


def missing(given: Mapping[str, Any], kind: type) -> list[str]:
    """Return the keys that a declaration needs and a mapping lacks."""
    return [
        f.name
        for f in dataclasses.fields(kind)
        if f.default is dataclasses.MISSING
        and f.default_factory is dataclasses.MISSING
        and f.name not in given
    ]


def described(annotation: Any, value: object = None) -> str:
    """Say in words what an annotation accepts, with the name that is nearest to a value that it does not accept."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        return " or ".join(described(a, value) for a in arguments if a is not types.NoneType)
    if origin is Literal:
        return expected_one_of(str(value), map(str, arguments))
    if origin is tuple:
        return f"a tuple, each {described(arguments[0], _stranger(value, arguments[0]))}"
    if origin is not None and issubclass(origin, Mapping):
        return f"a dict whose values are each {described(arguments[1])}"
    if dataclasses.is_dataclass(annotation):
        assert isinstance(annotation, type)
        return f"a dict with the keys {', '.join(field_types(annotation))}"
    return _WORDS.get(annotation, str(annotation))


def filled(kind: type[Kind], given: Mapping[str, Any]) -> Kind:
    """Make a declaration of a mapping that fits it; keys that it does not know are left out."""
    hints = field_types(kind)
    return kind(**{name: _converted(given[name], hints[name]) for name in hints if name in given})


def _converted(value: object, annotation: Any) -> object:
    inner = _declaration_in(annotation)
    if inner is not None and isinstance(value, Mapping):
        return filled(inner, value)
    return tuple(value) if isinstance(value, list) else value


def _declaration_in(annotation: Any) -> type | None:
    """Return the declaration that an annotation is, or that it has in a union."""
    kinds = [a for a in (annotation, *get_args(annotation)) if dataclasses.is_dataclass(a)]
    return kinds[0] if kinds and isinstance(kinds[0], type) else None


def _stranger(value: object, annotation: Any) -> object:
    """Return the first item that does not fit, of a value that has items."""
    items = value if isinstance(value, tuple | list) else ()
    return next((v for v in items if not accepts(v, annotation)), None)


def _misfit(key: str, value: object, annotation: Any, *, noun: str, at: Place) -> Iterator[UserError]:
    """Yield what is wrong with the value of a known key, as deep inside it as can be said."""
    inner = _declaration_in(annotation)
    if inner is None or not isinstance(value, Mapping):
        yield UserError(
            f"the {noun} '{key}' cannot be {value!r}", where=at(key), expected=described(annotation, value)
        )
        return
    yield from mistakes(
        value, [inner], noun="key", whose=f"the {noun} '{key}' has", at=lambda name: at(f"{key}.{name}")
    )
    for name in missing(value, inner):
        yield UserError(
            f"the {noun} '{key}' lacks '{name}'",
            where=at(key),
            expected=described(field_types(inner)[name]),
        )
