"""The form of a schema: the part of its document that says which payloads there are, without references and texts.

Two documents with the same form are the same version of a schema. A form also says how a payload of an earlier
version is completed: which defaults are filled in, and which unknown fields are dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal
from urllib.parse import unquote

from strandline.schema.promotion import duplicate
from strandline.schema.structure import compatible
from strandline.tables.errors import BadDeclaration

SchemaForm = Any
#: Completes a value, which it may change, and returns it.
Completion = Callable[[Any], Any]
#: What happens to members that a form does not name: ``closed`` drops them where the schema forbids them, ``typed``
#: also where it says nothing about them, as types in Python do.
Unknown = Literal["keep", "closed", "typed"]

#: References are replaced by what they refer to, so a small document can have a large form.
MAX_PARTS = 100_000

_TEXTS = frozenset({
    "$comment", "$defs", "$id", "$ref", "definitions", "deprecated", "description", "discriminator", "examples",
    "readOnly", "title", "writeOnly",
})  # fmt: skip
_ONE = frozenset({
    "additionalProperties", "additionalItems", "contains", "else", "if", "items", "not", "propertyNames", "then",
    "unevaluatedItems", "unevaluatedProperties",
})  # fmt: skip
_SEVERAL = frozenset({"allOf", "anyOf", "items", "oneOf", "prefixItems"})
_NAMED = frozenset({"dependentSchemas", "patternProperties", "properties"})


# --- making forms --------------------------------------------------------------------------------------------------


def form_of(document: Mapping[str, Any]) -> SchemaForm:
    """The form of a document. Raises BadDeclaration if it is too large."""
    parts = 0

    def visit(schema: Any, within: tuple[str, ...]) -> Any:
        nonlocal parts
        parts += 1
        if parts > MAX_PARTS:
            raise BadDeclaration(f"the schema has more than {MAX_PARTS} parts with its references resolved")
        if not isinstance(schema, Mapping):
            return schema
        own = dict(_visited(schema, within))
        reference = schema.get("$ref")
        if not isinstance(reference, str) or not reference.startswith("#"):
            return own
        if reference in within:
            # Nothing is known to fit this form, except the same form.
            return {"not": {"enum": [f"recursive {reference}"]}}
        target = visit(referenced(reference, document), (*within, reference))
        return {**target, **own} if isinstance(target, dict) else own

    def _visited(schema: Mapping[str, Any], within: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
        for keyword, value in schema.items():
            if keyword in _TEXTS:
                continue
            if keyword in _NAMED and isinstance(value, Mapping):
                yield keyword, {name: visit(each, within) for name, each in value.items()}
            elif keyword in _SEVERAL and isinstance(value, list):
                yield keyword, [visit(each, within) for each in value]
            elif keyword in _ONE:
                yield keyword, visit(value, within)
            elif keyword == "required" and isinstance(value, list):
                yield keyword, sorted(value)
            else:
                yield keyword, value

    return visit(document, ())


def referenced(reference: str, document: Mapping[str, Any]) -> Any:
    """The part of the document that a reference names; None if it names none."""
    if reference != "#" and not reference.startswith("#/"):
        return None
    found: Any = document
    for step in unquote(reference[2:]).split("/") if reference != "#" else ():
        step = step.replace("~1", "/").replace("~0", "~")
        if isinstance(found, Mapping):
            found = found.get(step)
        elif isinstance(found, list) and step.isdecimal() and int(step) < len(found):
            found = found[int(step)]
        else:
            return None
    return found


# --- completing payloads --------------------------------------------------------------------------------------------


def completion(form: SchemaForm, unknown: Unknown) -> Completion | None:
    """Return the function that fills in defaults and drops unknown members; None if there is nothing to do."""
    if not isinstance(form, dict):
        return None
    parts = [part for part in (_members(form, unknown), _elements(form, unknown), _choice(form, unknown)) if part]
    # Each part of allOf sees all members, so it cannot tell which are unknown.
    parts += [part for each in form.get("allOf", ()) if (part := completion(each, "keep"))]
    if not parts:
        return None
    if len(parts) == 1:
        return parts[0]

    def complete(value: Any) -> Any:
        for part in parts:
            value = part(value)
        return value

    return complete


def _members(form: dict[str, Any], unknown: Unknown) -> Completion | None:
    properties = form.get("properties", {})
    defaults = _defaults(form)
    inner = {name: part for name, each in properties.items() if (part := completion(each, unknown))}
    others = form.get("additionalProperties")
    outer = completion(others, unknown)
    drops = _drops(form, unknown)
    if not (defaults or inner or outer or drops):
        return None

    def complete(value: Any) -> Any:
        if type(value) is not dict:
            return value
        if drops:
            for name in [name for name in value if name not in properties]:
                del value[name]
        for name, default in defaults.items():
            if name not in value:
                value[name] = duplicate(default)
        for name, part in inner.items():
            if name in value:
                value[name] = part(value[name])
        if outer is not None:
            for name in value.keys() - properties.keys():
                value[name] = outer(value[name])
        # In the order of the schema, as a new payload is.
        return {**{name: value[name] for name in properties if name in value}, **value}

    return complete


def _drops(form: dict[str, Any], unknown: Unknown) -> bool:
    if unknown == "keep" or "properties" not in form or "patternProperties" in form:
        return False
    others = form.get("additionalProperties")
    return others is False or (unknown == "typed" and others is None)


def _defaults(form: dict[str, Any]) -> dict[str, Any]:
    properties = form.get("properties", {})
    return {name: each["default"] for name, each in properties.items() if isinstance(each, dict) and "default" in each}


def _elements(form: dict[str, Any], unknown: Unknown) -> Completion | None:
    part = completion(form.get("items"), unknown)
    if part is None:
        return None
    return lambda value: [part(each) for each in value] if type(value) is list else value


def _choice(form: dict[str, Any], unknown: Unknown) -> Completion | None:
    """Alternatives are completed where the value shows which one it is: by its type, and by the constants of its
    members."""
    choices = [each for word in ("anyOf", "oneOf") for each in form.get(word, ()) if isinstance(each, dict)]
    parts = [(each, part) for each in choices if (part := completion(each, unknown))]
    if not parts:
        return None

    def complete(value: Any) -> Any:
        possible = [each for each in choices if _may_be(value, each)]
        if len(possible) != 1:
            return value
        return next((part(value) for each, part in parts if each is possible[0]), value)

    return complete


def _may_be(value: Any, form: dict[str, Any]) -> bool:
    kind = "object" if isinstance(value, dict) else "array" if isinstance(value, list) else ""
    if form.get("type", kind) != kind:
        return False
    for name, each in form.get("properties", {}).items() if kind == "object" else ():
        constants = each.get("enum", [each["const"]] if "const" in each else None) if isinstance(each, dict) else None
        if constants is not None and value.get(name) not in constants:
            return False
    return True


# --- comparing forms -----------------------------------------------------------------------------------------------


def completed_form(form: SchemaForm) -> SchemaForm:
    """The form of stored payloads: every member with a default exists."""
    return _mapped(form, lambda required, defaults: sorted({*required, *defaults}))


def accepted_form(form: SchemaForm) -> SchemaForm:
    """The form of payloads that completion turns into payloads of ``form``: members with a default may be missing,
    and unknown members are dropped."""
    return _mapped(form, lambda required, defaults: [name for name in required if name not in defaults], opened=True)


def _mapped(
    form: SchemaForm, require: Callable[[list[str], dict[str, Any]], list[str]], opened: bool = False
) -> SchemaForm:
    if not isinstance(form, dict):
        return form
    changed: dict[str, Any] = {}
    for keyword, value in form.items():
        if keyword == "properties":
            changed[keyword] = {name: _mapped(each, require, opened) for name, each in value.items()}
        elif keyword in ("anyOf", "items", "oneOf", "additionalProperties"):
            several = isinstance(value, list)
            changed[keyword] = (
                [_mapped(each, require, opened) for each in value] if several else _mapped(value, require, opened)
            )
        else:
            changed[keyword] = value
    if "properties" in form:
        changed["required"] = require(form.get("required", []), _defaults(form))
        if opened and _drops(form, "closed"):
            del changed["additionalProperties"]
    return changed


def incompatibilities(old: SchemaForm, new: SchemaForm) -> Iterator[str]:
    """Why completed payloads of ``old`` are not known to be accepted by ``new``: a sentence for each field. Both forms
    are as returned by :func:`completed_form` and :func:`accepted_form`."""
    if compatible(old, new):
        return
    known, wanted = (each.get("properties", {}) for each in (old, new))
    found = False
    for name in new.get("required", ()):
        if name not in old.get("required", ()):
            found = True
            yield f"field {name!r} is required and has no default, but old rows may lack it"
    for name, form in wanted.items():
        if name in known and not compatible(known[name], form):
            found = True
            yield f"field {name!r} does not accept all values of its former type"
    if not found:
        yield "not all old rows fit the schema"
