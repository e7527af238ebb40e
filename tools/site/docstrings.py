"""How docstrings become Markdown: roles like ``:class:`Engine``` become code, ``#:`` comments describe attributes."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

from griffe import Attribute, Class, Docstring, Extension, Object

_ANNOTATED = re.compile(r"Annotated\[(\w+), (.*)\]$", re.DOTALL)
_STRING = re.compile(r"['\"](.*?)['\"](?=$|\s*['\"])", re.DOTALL)
_ROLE = re.compile(r":(?:class|meth|func|attr|mod|exc|data):`~?(?:[\w.]+\.)?(\w+)`")


class Docstrings(Extension):
    def on_object(self, *, obj: Object, **_: Any) -> None:
        if isinstance(obj, Attribute) and obj.docstring is None:
            comment = _comment_above(obj)
            if comment:
                obj.docstring = Docstring(comment, parent=obj)
        if obj.docstring is not None:
            text = _ROLE.sub(r"`\1`", obj.docstring.value)
            # A paragraph that ends with two colons introduces code, as Markdown's indented blocks do.
            obj.docstring.value = re.sub(r"::$", ":", text, flags=re.MULTILINE)

    def on_package(self, *, pkg: Object, **_: Any) -> None:
        _fold_attributes(pkg)


def _fold_attributes(obj: Object) -> None:
    """List the attributes of classes in their docstrings, a row each, instead of giving each a heading.

    Attributes that a method assigns are left out: what a class offers is declared in its body.
    """
    for member in obj.members.values():
        if member.is_alias:
            continue
        if isinstance(member, Class):
            _fold(member)
        if not isinstance(member, Attribute):
            _fold_attributes(member)


def _fold(cls: Class) -> None:
    lines = []
    for name, member in list(cls.members.items()):
        if isinstance(member, Attribute):
            del cls.members[name]
            assigned = member.labels == {"instance-attribute"} and member.value is not None
            if not assigned and not name.startswith("_"):
                lines.append(_row(member))
    if lines:
        text = "" if cls.docstring is None else cls.docstring.value
        table = ["| attribute | type | meaning |", "|---|---|---|", *lines]
        cls.docstring = Docstring("\n".join([text, "", *table]), parent=cls)


def _row(attribute: Attribute) -> str:
    kind = "" if attribute.annotation is None else str(attribute.annotation)
    meaning = "" if attribute.docstring is None else " ".join(attribute.docstring.value.split())
    if said := _ANNOTATED.match(kind):
        kind, meaning = said[1], meaning or "".join(_STRING.findall(said[2]))
    made = str(attribute.value).startswith(("field(", "msgspec.field("))
    if attribute.value is not None and not made and "property" not in attribute.labels:
        meaning = f"{meaning} Default: `{attribute.value}`.".strip()
    cells = [f"`{attribute.name}`", f"`{kind}`" if kind else "", meaning]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _comment_above(attribute: Attribute) -> str:
    if attribute.lineno is None or not isinstance(attribute.filepath, Path):
        return ""
    lines = _lines(attribute.filepath)
    found: list[str] = []
    at = attribute.lineno - 2
    while at >= 0 and lines[at].strip().startswith("#:"):
        found.insert(0, lines[at].strip()[2:].strip())
        at -= 1
    return " ".join(found)


@cache
def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines()
