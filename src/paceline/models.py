"""Pydantic at the file boundary: strict models, and their errors turned into ``file:line:key`` messages."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from paceline.errors import UserError, UserErrors, expected_one_of
from paceline.yamlfile import Located

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
        raise UserErrors(_translate(model, located, item) for item in error.errors()) from None


def _translate(model: type[BaseModel], located: Located, item: Any) -> UserError:
    key_path = [part for part in item["loc"] if _in_document(located, part)]
    where = located.where(key_path)
    kind = item["type"]
    if kind == "extra_forbidden":
        key = str(item["loc"][-1])
        fields = _fields_at(model, key_path[:-1])
        return UserError(f"unknown key '{key}'", where=where, expected=expected_one_of(key, fields))
    if kind == "missing":
        where = located.where(key_path[:-1] if item["loc"][-1] == key_path[-1:] else key_path)
        return UserError(f"the key '{item['loc'][-1]}' is missing", where=where)
    return UserError(item["msg"].removeprefix("Value error, "), where=where)


def _in_document(located: Located, part: Any) -> bool:
    """Drop the model and tag names that pydantic puts between the keys of a union."""
    return isinstance(part, int) or any(part in path for path in located.lines)


def _fields_at(model: type[BaseModel], key_path: list[Any]) -> list[str]:
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
