"""JSON Schema validation as the streams protocol defines it: permissive, without references, without network access.

Schemas can be written so that proving a lens for them takes minutes. The budget of a registry update counts work
instead of time, so that an update is refused on every machine or on none. The budget is a context variable, because
every function that inspects a schema spends from it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from strandline.late_import import LateModule
from strandline.schema.errors import SchemaError

if TYPE_CHECKING:
    import jsonschema_rs
else:
    jsonschema_rs = LateModule("jsonschema_rs")

#: Maximum number of examined parts of schemas, counting repetitions. Enough for hundreds of operations on thousands of
#: properties, and at most a second or two.
MAX_EFFORT = 500_000

_spent: ContextVar[list[int] | None] = ContextVar("spent", default=None)


@contextmanager
def bounded(limit: int = MAX_EFFORT) -> Iterator[None]:
    """Within this context, ``spend`` raises SchemaError once the budget is used up."""
    token = _spent.set([limit])
    try:
        yield
    finally:
        _spent.reset(token)


def spend(units: int = 1) -> None:
    left = _spent.get()
    if left is not None:
        left[0] -= units
        if left[0] < 0:
            raise SchemaError("schema is too complex to be checked")


#: Maximum nesting of schemas and lenses. Real schemas are flatter, and every walk over one is recursive.
MAX_DEPTH = 100
#: Maximum messages about one document. A large array with only invalid elements would have as many messages as
#: elements.
MAX_MESSAGES = 20

_DATE_TIME = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(?:\.\d{1,9})?(?:Z|[+-]\d{2}:\d{2})", re.ASCII)

_PLAIN = frozenset({
    "type", "enum", "const", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength",
    "maxLength", "pattern", "minItems", "maxItems", "uniqueItems", "minContains", "maxContains", "minProperties",
    "maxProperties", "required", "dependentRequired",
})  # fmt: skip
_SCHEMA = frozenset({
    "additionalProperties", "additionalItems", "contains", "not", "if", "then", "else", "propertyNames",
    "unevaluatedItems", "unevaluatedProperties",
})  # fmt: skip
_SCHEMAS = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_NAMED_SCHEMAS = frozenset({"properties", "patternProperties", "dependentSchemas", "dependencies"})
_REFERENCES = frozenset({"$ref", "$dynamicRef", "$recursiveRef"})

#: The dialects that a schema can name, and the names of their validators; the default is draft 7.
_DIALECTS = {
    "https://json-schema.org/draft/2019-09/schema": "Draft201909Validator",
    "https://json-schema.org/draft/2020-12/schema": "Draft202012Validator",
}


class Validation:
    """A compiled schema. Raises SchemaError for a schema with references, and for one that cannot be compiled."""

    __slots__ = ("_validator",)

    def __init__(self, schema: object) -> None:
        if not isinstance(schema, (dict, bool)):
            raise SchemaError("schema must be an object or a boolean")
        refuse_references(schema)
        named = schema.get("$schema") if isinstance(schema, dict) else None
        dialect = named.rstrip("#") if isinstance(named, str) else ""
        self._validator = _compile(
            _assertions(schema), getattr(jsonschema_rs, _DIALECTS.get(dialect, "Draft7Validator"))
        )

    def accepts(self, document: Any) -> bool:
        try:
            return self._validator.is_valid(document)
        except ValueError:
            return False

    def check(self, documents: Sequence[Any]) -> None:
        """Raise for the first document that does not conform, with everything that is wrong with it."""
        is_valid = self._validator.is_valid
        for number, document in enumerate(documents):
            try:
                if is_valid(document):
                    continue
                message = "; ".join(self._messages(document))
            except ValueError as error:  # nested too deeply to be checked
                message = str(error)
            raise SchemaError(message if len(documents) == 1 else f"element {number}: {message}")

    def _messages(self, document: Any) -> Iterator[str]:
        for number, error in enumerate(self._validator.iter_errors(document)):
            if number == MAX_MESSAGES:
                yield "and more"
                return
            place = "".join(f"/{step}" for step in error.instance_path)
            yield f"{place} {error.message}" if place else error.message


def refuse_references(schema: object) -> None:
    """Raise if the schema contains a reference anywhere, or is nested too deeply."""
    for level in levels(schema):
        for value in level:
            if isinstance(value, dict) and not _REFERENCES.isdisjoint(value):
                raise SchemaError("external $ref is not supported")


def levels(document: object) -> Iterator[list[dict[str, Any] | list[Any]]]:
    """Yield the objects and arrays of a document, level by level. Raises SchemaError if there are too many levels."""
    level = [document] if isinstance(document, (dict, list)) else []
    for _ in range(MAX_DEPTH):
        if not level:
            return
        yield level
        below = [each for value in level for each in (value.values() if isinstance(value, dict) else value)]
        level = [each for each in below if isinstance(each, (dict, list))]
    raise SchemaError("schema is nested too deeply")


def _compile(schema: object, compiler: Callable[..., jsonschema_rs.Validator]) -> jsonschema_rs.Validator:
    try:
        return compiler(schema, formats={"date-time": _is_date_time}, validate_formats=True, mask="value", offline=True)
    except jsonschema_rs.ValidationError as error:
        place = "".join(f"/{step}" for step in error.instance_path)
        raise SchemaError(f"schema{place} is invalid: {error.message}") from None
    except (ValueError, jsonschema_rs.ReferencingError) as error:
        raise SchemaError(f"schema is invalid: {error}") from None


def _is_date_time(text: str) -> bool:
    return _DATE_TIME.fullmatch(text) is not None


def _assertions(schema: Any) -> Any:
    """Return the asserting part of the schema. Everything of an unexpected form is kept, for the compiler to refuse."""
    spend()
    if not isinstance(schema, dict):
        return schema
    kept: dict[str, Any] = {}
    for keyword, value in schema.items():
        if keyword in _PLAIN:
            spend(len(value) if isinstance(value, list) else 1)
            kept[keyword] = _distinct(value) if keyword in ("required", "type") else value
        elif keyword in _SCHEMA:
            kept[keyword] = _assertions(value)
        elif keyword in _SCHEMAS or keyword == "items":
            kept[keyword] = [_assertions(each) for each in value] if isinstance(value, list) else _assertions(value)
        elif keyword in _NAMED_SCHEMAS:
            named = isinstance(value, dict)
            kept[keyword] = {name: _assertions(each) for name, each in value.items()} if named else value
        elif keyword == "format" and value == "date-time":
            kept[keyword] = value
    return kept


def _distinct(value: Any) -> Any:
    """Remove duplicate names, which are harmless."""
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return list(dict.fromkeys(value))
    return value
