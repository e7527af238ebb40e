"""Find the nearest valid name for an unknown one, for error messages about settings, bodies and arguments."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from functools import cache
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import msgspec

T = TypeVar("T")

#: The message of msgspec for a member that a struct does not have. It includes the path, except at the top of a body.
_UNKNOWN = re.compile(r"Object contains unknown field `(?P<name>.*?)`(?: - at `(?P<path>\$.*)`)?", re.DOTALL)
#: The message of msgspec for a value that is not one of those of an enumeration.
_NOT_ALLOWED = re.compile(r"Invalid enum value (?P<value>.*?)(?: - at `(?P<path>\$.*)`)?", re.DOTALL)
#: A step of such a path: a member, or an element of a list or of a mapping.
_STEP = re.compile(r"\.(?P<member>[^.\[]+)|\[[^\]]*\]")


#: Names are quoted up to this length, because a name can be as long as a body.
MAX_QUOTED = 64


def nearest_name(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most similar to ``name``; None if none is similar."""
    names = list(known)
    # Capitals and separators are easily mistaken, and often the only difference.
    plain = {_plain(one): one for one in reversed(names)}
    near = get_close_matches(_plain(name), plain, n=1)
    return plain[near[0]] if near else None


@cache
def member_names(struct: type[msgspec.Struct]) -> tuple[str, ...]:
    """The names of the members that a body of this struct may have."""
    tag = struct.__struct_config__.tag_field
    names = tuple(field.encode_name for field in msgspec.structs.fields(struct))
    return names if tag is None else (tag, *names)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the end of an error message: ``; did you mean 'max_logs'?``, or nothing."""
    near = nearest_name(name, known)
    return "" if near is None else f"; did you mean {near!r}?"


def decode_body(decoder: msgspec.json.Decoder[T], body: bytes) -> T:
    """Decode a body. The error for an unknown member names the nearest valid one, and the error for a value that is not
    allowed names those that are."""
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise with_nearest(error, decoder.type) from None


def with_nearest(error: msgspec.ValidationError, type: Any) -> msgspec.ValidationError:
    """Add the nearest valid name to the error, if it is about an unknown member of a body of this type, and the allowed
    values, if it is about a value that is not one of them."""
    if found := _UNKNOWN.fullmatch(str(error)):
        name, path = found["name"][:MAX_QUOTED], found["path"] or "$"
        known = [name for one in _types_at(type, path) if _is_struct(one) for name in member_names(one)]
        return msgspec.ValidationError(f"unknown member {name!r}{_where(path)}{did_you_mean(name, known)}")
    if found := _NOT_ALLOWED.fullmatch(str(error)):
        value, path = found["value"], found["path"] or "$"
        allowed = [str(value) for one in _types_at(type, path) if get_origin(one) is Literal for value in get_args(one)]
        shown = value if len(value) <= MAX_QUOTED else f"{value[:MAX_QUOTED]}…"
        return msgspec.ValidationError(f"invalid value {shown}{_where(path)}: expected {', '.join(allowed)}")
    return error


def _where(path: str) -> str:
    return "" if path == "$" else f" in {path[2:] if path.startswith('$.') else path[1:]}"


def _plain(name: str) -> str:
    return name.replace("_", "").replace("-", "").lower()


def _types_at(type: Any, path: str) -> list[Any]:
    """The types that a value at this path may have."""
    types = list(_alternatives(type))
    for step in _STEP.finditer(path):
        member, found = step["member"], list[Any]()
        for one in types:
            if not _is_struct(one):
                # The values of a mapping, or the elements of a list: the last argument that is a type.
                found += [one for one in get_args(one) if one is not Ellipsis][-1:] if member is None else []
            elif member is not None:
                found += [field.type for field in msgspec.structs.fields(one) if field.encode_name == member]
        types = [alternative for one in found for alternative in _alternatives(one)]
    return types


def _alternatives(type: Any) -> Iterator[Any]:
    origin = get_origin(type)
    if origin is Annotated:
        yield from _alternatives(get_args(type)[0])
    elif origin in (Union, UnionType):
        for one in get_args(type):
            yield from _alternatives(one)
    else:
        yield type


def _is_struct(type: Any) -> bool:
    return isinstance(type, msgspec.StructMeta)
