"""What the data of an element must look like: the JSON Schema of a collection, compiled once."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import jsonschema_rs

from strandline.protocols.collections.problems import schema_failed
from strandline.signing.canonical_json import canonical, parse

#: Halves of surrogate pairs, as the canonical form has them.
_LONE = re.compile(rb"\\ud[89a-f][0-9a-f]{2}")


class BadObjectSchema(ValueError):
    """A schema that cannot be compiled."""


class ObjectSchema:
    """Draft 7 unless the schema says otherwise. Nothing in it can point outside of it."""

    __slots__ = ("_validator",)

    def __init__(self, schema: Mapping[str, Any]) -> None:
        """Raises BadObjectSchema."""
        try:
            rules = dict(schema)
            kind = jsonschema_rs.validator_cls_for(rules) if "$schema" in rules else jsonschema_rs.Draft7Validator
            self._validator = kind(rules, offline=True)
        except (ValueError, jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError) as error:
            raise BadObjectSchema(str(error).partition("\n")[0]) from None

    def check(self, document: dict[str, Any]) -> None:
        """Raise Refused for the first thing that is wrong with a document."""
        try:
            error = next(iter(self._validator.iter_errors(document)), None)
        except ValueError:
            # No text can have half a pair; whether the rest is right can still be said.
            error = next(iter(self._validator.iter_errors(parse(_LONE.sub(rb"\\ufffd", canonical(document))))), None)
        if error is not None:
            raise schema_failed(error.message, list(error.instance_path), error.kind.name)
