"""Pydantic at the file boundary: strict models, and their errors turned into ``file:line:key`` messages."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from paceline.base.errors import UserError, UserErrors, expected_one_of
from paceline.spec.files.yaml_file import Located

Model = TypeVar("Model", bound=BaseModel)


class FileModel(BaseModel):
    """Base of everything read from a YAML file: unknown keys are errors, values are immutable, numbers finite."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, allow_inf_nan=False)


def validate(model: type[Model], located: Located) -> Model:
    """Check a YAML document against a model.

    Raises:
        UserErrors: One error for every problem, each with ``file:line:key``.
    """
    if not isinstance(located.data, dict):
        raise UserError("the file must hold a mapping", where=located.where(()))
    try:
        return model.model_validate(located.data)
    except ValidationError as error:
        items = _distinct(located, error.errors())
        raise UserErrors(_translate(model, located, path, item) for path, item in items) from None


def _distinct(located: Located, items: list[Any]) -> list[tuple[tuple[str | int, ...], Any]]:
    """Keep one error a place: a union complains once for every member, also about what another member accepts."""
    found: dict[tuple[str | int, ...], Any] = {}
    for item in items:
        missing = item["type"] == "missing"
        parts = item["loc"][:-1] if missing else item["loc"]
        path = tuple(part for part in parts if _in_document(located, part))
        path = (*path, item["loc"][-1]) if missing else path
        if path not in found or item["type"] == "finite_number":
            found[path] = item
    deeper = {path[:length] for path in found for length in range(len(path))}
    return [(path, item) for path, item in found.items() if path not in deeper]


def _translate(model: type[BaseModel], located: Located, path: tuple[str | int, ...], item: Any) -> UserError:
    where = located.where(path)
    kind = item["type"]
    if kind == "extra_forbidden":
        key = str(item["loc"][-1])
        return UserError(
            f"unknown key '{key}'", where=where, expected=expected_one_of(key, _fields_at(model, path[:-1]))
        )
    if kind == "missing":
        return UserError(f"the key '{path[-1]}' is missing", where=where)
    if kind == "literal_error":
        choices = re.findall(r"'([^']*)'", item["ctx"]["expected"])
        return UserError(
            f"'{item['input']}' is not valid",
            where=where,
            expected=expected_one_of(str(item["input"]), choices),
        )
    return UserError(item["msg"].removeprefix("Value error, "), where=where)


def _in_document(located: Located, part: Any) -> bool:
    """Drop the model and tag names that pydantic puts between the keys of a union."""
    return isinstance(part, int) or any(part in path for path in located.lines)


def _fields_at(model: type[BaseModel], key_path: Sequence[str | int]) -> list[str]:
    """List the field names of the model that governs a place in the document."""
    current: Any = model
    for part in key_path:
        if isinstance(part, int):
            continue
        fields = getattr(current, "model_fields", {})
        if part not in fields:
            continue
        current = _model_in(fields[part].annotation) or current
    fields = getattr(current, "model_fields", {})
    return [info.alias or name for name, info in fields.items()]


def _model_in(annotation: Any) -> Any:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for argument in getattr(annotation, "__args__", ()):
        found = _model_in(argument)
        if found is not None:
            return found
    return None
