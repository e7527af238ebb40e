"""Options: JSON objects whose members a struct declares, with their types, bounds and defaults.

Every option is checked, unknown ones are refused, and the first error is reported with its place in the document.
"""

from __future__ import annotations

from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import msgspec
from msgspec import Meta, UnsetType

from strandline.nearest_name import did_you_mean, member_names
from strandline.schema.errors import SchemaError

#: The largest integer that every client can represent.
MAX_WHOLE = 2**53 - 1

Count = Annotated[int, Meta(ge=0, le=MAX_WHOLE)]
Positive = Annotated[int, Meta(ge=1, le=MAX_WHOLE)]
#: Text that is trimmed and must not be empty.
Name = Annotated[str, Meta(min_length=1, pattern=r"\S")]
#: Names without duplicates.
Names = Annotated[tuple[Name, ...], Meta(max_length=64)]
#: Names in lower case.
LowerNames = Annotated[Names, Meta(extra={"lower": True})]

S = TypeVar("S", bound=msgspec.Struct)


class DeclaredOptions(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """An object of options. A field without a value in the document has its default."""


def read_options(declared: type[S], document: object, path: str) -> tuple[S, dict[str, Any]]:
    """Return the options of ``document``, and the options that were set, in their stored form.

    ``path`` is the name of the document in messages. Raises SchemaError.
    """
    if not isinstance(document, dict):
        raise SchemaError(f"{path} must be an object")
    check_members(document, declared, path)
    values: dict[str, Any] = {}
    given: dict[str, Any] = {}
    for field in msgspec.structs.fields(declared):
        name = field.encode_name
        if name in document:
            values[field.name], given[name] = _read(field.type, document[name], f"{path}.{name}")
    return declared(**values), given


def check_members(document: dict[str, Any], declared: type[msgspec.Struct], path: str) -> None:
    """Raise SchemaError for the first member that is not declared."""
    names = member_names(declared)
    for name in document:
        if name not in names:
            raise SchemaError(f"{path}.{name} is not supported{did_you_mean(name, names)}")


def _read(type: Any, value: Any, path: str) -> tuple[Any, Any]:
    """Return the value of an option, and its stored form."""
    type, meta = _taken_apart(type)
    if isinstance(type, msgspec.StructMeta):
        return read_options(type, value, path)
    if get_origin(type) is tuple:
        names = _names(value, path, meta)
        return tuple(names), names
    if type is bool:
        if not isinstance(value, bool):
            raise SchemaError(f"{path} must be boolean")
    elif type is int:
        value = _whole(value, path, meta)
    elif type is str:
        value = _text(value, path)
    elif get_origin(type) is Literal and (not isinstance(value, str) or value not in get_args(type)):
        raise SchemaError(f"{path} must be {'|'.join(get_args(type))}")
    return value, value


def _taken_apart(type: Any) -> tuple[Any, dict[str, Any]]:
    """Return the plain type without annotations, and its bounds. A union other than an optional type is returned
    unchanged: the code that declares it checks its values."""
    bounds: dict[str, Any] = {}
    while True:
        if get_origin(type) is Annotated:
            type, *metas = get_args(type)
            for meta in metas:
                told = {"ge": meta.ge, "le": meta.le, "most": meta.max_length, **(meta.extra or {})}
                bounds |= {name: bound for name, bound in told.items() if bound is not None}
        elif get_origin(type) in (Union, UnionType):
            types = [one for one in get_args(type) if one is not UnsetType]
            if len(types) > 1:
                return type, bounds
            type = types[0]
        else:
            return type, bounds


def _whole(value: Any, path: str, bounds: dict[str, Any]) -> int:
    low, high = bounds["ge"], bounds["le"]
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        told = f">= {low}" if high == MAX_WHOLE else f"between {low} and {high}"
        raise SchemaError(f"{path} must be an integer {told}")
    return value


def _text(value: Any, path: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise SchemaError(f"{path} must be a non-empty string")
    return value.strip()


def _names(values: Any, path: str, bounds: dict[str, Any]) -> list[str]:
    if not isinstance(values, list):
        raise SchemaError(f"{path} must be an array of strings")
    if len(values) > bounds["most"]:
        raise SchemaError(f"{path} must have at most {bounds['most']} entries")
    names = [_text(value, f"{path}[{index}]") for index, value in enumerate(values)]
    return list(dict.fromkeys(name.lower() if "lower" in bounds else name for name in names))
