"""Schemas: the type of a table's payloads, declared as a msgspec Struct, a dataclass, a pydantic model or a JSON
Schema. Each kind validates payloads and names the invalid fields."""

from __future__ import annotations

import dataclasses
import sys
import typing
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast

import msgspec

from strandline.late_import import LateModule
from strandline.tables.errors import BadDeclaration, TableError, invalid, invalid_fields
from strandline.tables.names import is_field
from strandline.tables.schema_forms import Unknown, completion, form_of, referenced

if TYPE_CHECKING:
    import jsonschema_rs
else:
    jsonschema_rs = LateModule("jsonschema_rs")

#: The exceptions that msgspec raises for an invalid value, including those of __post_init__.
_REFUSED = (msgspec.ValidationError, ValueError, TypeError, OverflowError, RecursionError)


class Schema(ABC):
    """``document`` is the JSON Schema of payloads. ``fields`` are their field names, or None if other fields are
    allowed."""

    document: dict[str, Any]
    fields: tuple[str, ...] | None
    #: A class whose instances are accepted as payloads besides mappings.
    model: type | None = None
    #: What validation does with unknown fields of payloads.
    unknown: Unknown = "typed"
    #: Whether a stored payload has every member that the document gives a default.
    fills_defaults = True

    def validate(self, payload: object) -> dict[str, Any]:
        """Return the payload to store, with defaults filled in and unknown fields removed if the schema ignores them.
        Raises TableError that lists all invalid fields."""
        if self.model is not None and isinstance(payload, self.model):
            payload = self.plain(payload)
        if not isinstance(payload, Mapping):
            raise invalid("the payload must be an object", "payload")
        checked = self.check(dict(payload))
        if self.fields is None:
            wrong = {name: "is a reserved name" for name in checked if not is_field(name)}
            if wrong:
                raise invalid_fields(wrong, "")
        return checked

    def patch(self, payload: Mapping[str, Any], patch: object) -> dict[str, Any]:
        """Return the fields of the patch to store. Raises TableError if the patched payload is invalid."""
        if not isinstance(patch, Mapping):
            raise invalid("the patch must be an object", "patch")
        if not patch:
            raise invalid("the patch must have at least one field", "patch")
        checked = self.validate({**payload, **patch})
        # A schema may omit fields that have their default value.
        known = checked.keys() | set(self.fields or ())
        unknown = {name: "is not a field" for name in patch if name not in known}
        if unknown:
            raise invalid_fields(unknown, "")
        return {name: checked.get(name, value) for name, value in msgspec.to_builtins(patch).items()}

    @abstractmethod
    def check(self, payload: dict[str, Any]) -> dict[str, Any]: ...

    @abstractmethod
    def plain(self, payload: Any) -> Any:
        """Convert an instance of the model to a mapping."""

    def declares(self, name: str) -> bool:
        """Whether the schema names this field."""
        return name in (_properties(self.document) if self.fields is None else self.fields)

    def computed_defaults(self) -> dict[str, Any]:
        """The values of defaults that a function computes, as far as the document does not have them."""
        properties = _properties(self.document)
        computed = {name: make() for name, make in self.factories().items()}
        return {
            name: msgspec.to_builtins(value)
            for name, value in computed.items()
            if value is not msgspec.UNSET and "default" not in properties.get(name, {})
        }

    def factories(self) -> dict[str, Callable[[], Any]]:
        """The functions that compute defaults, by field."""
        return {}

    @property
    def text_fields(self) -> tuple[str, ...]:
        """The fields that hold free text."""
        properties = _properties(self.document)
        return tuple(name for name, declared in properties.items() if _is_text(declared, self.document))


def schema_of(declared: object) -> Schema:
    """Create the schema of a declaration."""
    schema: Schema
    if isinstance(declared, dict):
        schema = JsonSchema(declared)
    elif isinstance(declared, type) and _is_pydantic(declared):
        schema = PydanticSchema(declared)
    elif isinstance(declared, type) and (issubclass(declared, msgspec.Struct) or dataclasses.is_dataclass(declared)):
        schema = TypeSchema(declared)
    else:
        raise BadDeclaration(
            "a schema must be a msgspec Struct, a dataclass, a pydantic model, or a JSON Schema as a dict, "
            f"not {declared!r}"
        )
    for name in schema.fields if schema.fields is not None else _properties(schema.document):
        if not is_field(name):
            raise BadDeclaration(f"a payload cannot have the field {name!r}: the name is reserved for rows")
    return schema


class TypeSchema(Schema):
    """A msgspec Struct or a dataclass, checked by msgspec."""

    def __init__(self, model: type) -> None:
        self.model = model
        try:
            self.document = msgspec.json.schema(model)
            msgspec.json.Decoder(model)
        except TypeError as error:
            raise BadDeclaration(f"{model.__name__} cannot be a schema: {error}") from None
        if _resolved(self.document, self.document).get("type") != "object":
            raise BadDeclaration(f"{model.__name__} cannot be a schema: its instances are not objects in JSON")
        self._members = {name: (type, required) for name, type, required in _members(model)}
        self.fields = tuple(self._members)
        self._is_closed = issubclass(model, msgspec.Struct) and model.__struct_config__.forbid_unknown_fields
        self.fills_defaults = not any(_omitting(msgspec.inspect.type_info(model), set()))

    def check(self, payload: dict[str, Any]) -> dict[str, Any]:
        try:
            checked: dict[str, Any] = self.plain(msgspec.convert(payload, self.model))
            return checked
        except _REFUSED as error:
            raise invalid_fields(dict(self._errors(payload)), str(error)) from None

    def plain(self, payload: Any) -> Any:
        if not isinstance(payload, msgspec.Struct):
            # A dataclass can keep its defaults as attributes of the class, so the fields are read one by one.
            payload = {name: getattr(payload, name) for name in self._members}
        return msgspec.to_builtins(payload)

    def factories(self) -> dict[str, Callable[[], Any]]:
        model: Any = self.model
        if issubclass(model, msgspec.Struct):
            infos = msgspec.structs.fields(model)
            return {info.encode_name: info.default_factory for info in infos if callable(info.default_factory)}
        fields = dataclasses.fields(model)
        return {field.name: field.default_factory for field in fields if callable(field.default_factory)}

    @property
    def text_fields(self) -> tuple[str, ...]:
        info: Any = msgspec.inspect.type_info(self.model)
        return tuple(field.encode_name for field in info.fields if _may_be_text(field.type))

    def _errors(self, payload: dict[str, Any]) -> Iterator[tuple[str, str]]:
        for name, (type, required) in self._members.items():
            if name not in payload:
                if required:
                    yield name, "is required"
                continue
            try:
                msgspec.convert(payload[name], type)
            except _REFUSED as error:
                yield name, str(error)
        if self._is_closed:
            yield from ((name, "is not a field") for name in payload if name not in self._members)


class PydanticSchema(Schema):
    """A pydantic model. This module does not import pydantic, so only users of pydantic need it."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.document = model.model_json_schema()
        allows_more = model.model_config.get("extra") == "allow"
        self.fields = None if allows_more else tuple(_properties(self.document))
        self._error: type[Exception] = sys.modules["pydantic"].ValidationError

    def check(self, payload: dict[str, Any]) -> dict[str, Any]:
        model: Any = self.model
        try:
            encoded = msgspec.json.encode(payload)
        except _REFUSED as error:
            raise invalid(f"the payload cannot be encoded as JSON: {error}") from None
        try:
            checked: dict[str, Any] = model.model_validate_json(encoded).model_dump(mode="json", by_alias=True)
            return checked
        except self._error as error:
            raise self._refusal(error) from None

    def plain(self, payload: Any) -> Any:
        return payload.model_dump(mode="json", by_alias=True)

    def factories(self) -> dict[str, Callable[[], Any]]:
        model: Any = self.model
        return {
            field.serialization_alias or field.alias or name: field.default_factory
            for name, field in model.model_fields.items()
            if field.default_factory is not None and not field.default_factory_takes_validated_data
        }

    def _refusal(self, error: Any) -> TableError:
        errors: dict[str, str] = {}
        otherwise = ""
        for each in error.errors(include_url=False, include_context=False):
            place, message = each["loc"], each["msg"]
            if place:
                errors.setdefault(str(place[0]), message)
            else:
                otherwise = otherwise or message
        return invalid_fields(errors, otherwise)


class JsonSchema(Schema):
    """A JSON Schema. References to other documents are not resolved. Missing members get the default of their
    schema."""

    unknown: Unknown = "closed"
    fills_defaults = False

    def __init__(self, document: dict[str, Any]) -> None:
        try:
            # A private copy, so that later changes of the original have no effect.
            self.document = msgspec.json.decode(msgspec.json.encode(document))
            self._validator = jsonschema_rs.validator_for(self.document, validate_formats=True, offline=True)
        except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, *_REFUSED) as error:
            raise BadDeclaration(f"the JSON Schema cannot be used: {error}") from None
        if self.document.get("type", "object") != "object":
            raise BadDeclaration("the JSON Schema must have the type object")
        self._complete = completion(form_of(self.document), "keep")
        is_closed = self.document.get("additionalProperties") is False and "patternProperties" not in self.document
        self.fields = tuple(_properties(self.document)) if is_closed else None
        self._check_defaults()

    def _check_defaults(self) -> None:
        """A default that its own field refuses would make every payload without the field invalid."""
        defaults = {} if self._complete is None else self._complete({})
        for error in self._validator.iter_errors(defaults):
            # Other conditions may depend on fields that a payload has.
            if error.instance_path and list(error.schema_path)[:1] == ["properties"]:
                name = error.instance_path[0]
                message = f"the default of {name!r} is invalid: {error.message}"
                raise BadDeclaration(f"the JSON Schema cannot be used: {message}")

    def check(self, payload: dict[str, Any]) -> dict[str, Any]:
        try:
            plain: dict[str, Any] = msgspec.to_builtins(payload)
            if self._complete is not None:
                plain = self._complete(plain)
            if self._validator.is_valid(plain):
                return plain
            errors, otherwise = self._errors(plain)
        except _REFUSED as error:
            raise invalid(f"the payload cannot be validated: {error}") from None
        raise invalid_fields(errors, otherwise)

    def plain(self, payload: Any) -> Any:
        return payload

    def _errors(self, payload: dict[str, Any]) -> tuple[dict[str, str], str]:
        errors: dict[str, str] = {}
        otherwise = ""
        for error in self._validator.iter_errors(payload):
            place = list(error.instance_path)
            kind: Any = error.kind
            if place:
                errors.setdefault(str(place[0]), error.message)
            elif kind.name == "required":
                errors.setdefault(kind.property, "is required")
            elif kind.name == "additionalProperties":
                for name in kind.unexpected:
                    errors.setdefault(name, "is not a field")
            else:
                otherwise = otherwise or error.message
        return errors, otherwise


def _members(model: type) -> Iterator[tuple[str, Any, bool]]:
    """The JSON name, the type, and whether the field is required, for each field."""
    if issubclass(model, msgspec.Struct):
        for info in msgspec.structs.fields(model):
            yield info.encode_name, info.type, info.required
        return
    hints = typing.get_type_hints(model, include_extras=True)
    for field in dataclasses.fields(cast(Any, model)):
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        yield field.name, hints[field.name], required


def _omitting(type: Any, seen: set[int]) -> Iterator[bool]:
    """Whether each Struct within a type leaves out members that have their default."""
    if id(type) in seen:
        return
    seen.add(id(type))
    if isinstance(type, tuple):
        for each in type:
            yield from _omitting(each, seen)
    elif isinstance(type, msgspec.inspect.Type | msgspec.inspect.Field):
        if isinstance(type, msgspec.inspect.StructType):
            yield type.cls.__struct_config__.omit_defaults
        for name in type.__struct_fields__:
            yield from _omitting(getattr(type, name), seen)


def _may_be_text(type: msgspec.inspect.Type) -> bool:
    if isinstance(type, msgspec.inspect.UnionType):
        return any(map(_may_be_text, type.types))
    return isinstance(type, msgspec.inspect.StrType)


def _is_pydantic(declared: type) -> bool:
    pydantic = sys.modules.get("pydantic")
    return pydantic is not None and issubclass(declared, pydantic.BaseModel)


def _properties(document: Mapping[str, Any]) -> dict[str, Any]:
    found = _resolved(document, document).get("properties", {})
    return found if isinstance(found, dict) else {}


def _resolved(declared: Any, document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Follow references within the document."""
    for _ in range(16):
        reference = declared.get("$ref") if isinstance(declared, Mapping) else None
        if not isinstance(reference, str) or not reference.startswith("#/"):
            break
        declared = referenced(reference, document)
    return declared if isinstance(declared, Mapping) else {}


def _is_text(declared: Any, document: Mapping[str, Any]) -> bool:
    found = _resolved(declared, document)
    if any(isinstance(found.get(each), list) for each in ("anyOf", "oneOf")):
        return any(_is_text(one, document) for one in (*found.get("anyOf", ()), *found.get("oneOf", ())))
    kinds = found.get("type")
    is_string = kinds == "string" or (isinstance(kinds, list) and "string" in kinds)
    return is_string and not {"enum", "const", "format", "contentEncoding"} & found.keys()
