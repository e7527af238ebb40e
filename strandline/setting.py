"""How a setting is declared: one field of a section, with its type, bounds, default and description.

A section is a struct. Each of its fields that has a description is a setting; the other fields are not for operators::

    class Limits(Section):
        max_logs: Annotated[Cap, "Maximum number of logs."] = 100_000

The types below describe in words what they allow. The last part of a name is the unit: ``_ms``, ``_seconds``,
``_bytes``. Sections are declared next to the code that uses them; :mod:`strandline.server.settings` collects them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal, NamedTuple, get_args

import msgspec
from msgspec import Meta

Flag = Annotated[bool, Meta(description="true or false (or 1 or 0)")]
Text = Annotated[str, Meta(description="text")]
Texts = Annotated[tuple[str, ...], Meta(description="a list of texts, or texts with commas between them")]
Directory = Annotated[str, Meta(min_length=1, description="the path of a directory")]
Durability = Annotated[
    Literal["ephemeral", "memory", "disk", "fsync", "replicated"],
    Meta(description="ephemeral, memory, disk, fsync or replicated"),
]
Positive = Annotated[int, Meta(ge=1, lt=1 << 62, description="a whole number, 1 or more")]
Count = Annotated[int, Meta(ge=0, lt=1 << 62, description="a whole number, 0 or more")]
Cap = Annotated[int, Meta(ge=0, lt=1 << 62, description="a whole number, 0 or more; 0 is unlimited")]
Milliseconds = Annotated[int, Meta(ge=1, le=600_000, description="a whole number of milliseconds from 1 to 600000")]
Seconds = Annotated[float, Meta(ge=0, le=86_400, description="a number of seconds from 0 to 86400")]
Timeout = Annotated[float, Meta(gt=0, le=86_400, description="a number of seconds, over 0 and up to 86400")]
Origins = Annotated[
    tuple[Annotated[str, Meta(pattern=r"^(\*|[a-z][a-z0-9+.-]*://[^\s/,]+)$")], ...],
    Meta(description="a list of origins like https://example.org, or * for all of them"),
]

#: The unit of a value, by the last part of the setting's name.
UNITS = {"_ms": "ms", "_bytes": "bytes", "_seconds": "s", "_s": "s"}


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """A group of settings: a table in ``strandline.toml``."""


class Setting(NamedTuple):
    """A declaration, as the loader, the command line and the documents use it."""

    name: str
    #: Includes the bounds of the value. Converting a value to this type checks them.
    type: Any
    default: Any
    #: A description of what the setting does, in one or a few sentences.
    sentence: str

    @property
    def unit(self) -> str:
        """``ms``, ``s`` or ``bytes``; empty for a value without a unit."""
        return next((unit for ending, unit in UNITS.items() if self.name.endswith(ending)), "")


def settings_of(section: type[msgspec.Struct]) -> Iterator[Setting]:
    for field in msgspec.structs.fields(section):
        sentences = [one for one in get_args(field.type) if isinstance(one, str)]
        if sentences:
            yield Setting(field.name, field.type, field.default, sentences[0])


def expected(type: Any) -> str:
    """Describe in words the values that a setting's type allows."""
    return next(one.description for one in get_args(type) if isinstance(one, Meta) and one.description)
