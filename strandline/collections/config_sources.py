"""Sources of collections: tables of the settings file, a configuration file of Starfish, and declarations in Python.

All three are read value by value, so that all errors are reported at once. Names may be written with underscores, as in
TOML, or in camel case, as in Starfish's files: ``storage_path`` or ``storagePath``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_args

import msgspec

from strandline.collections.config import (
    AppendOnly,
    Collection,
    CollectionRateLimit,
    CollectionsConfig,
    FieldPermission,
    QueueEvents,
    RateDimension,
    RateLimit,
    RateRule,
)
from strandline.collections.config_check import check, start_of, warnings_about
from strandline.collections.config_tables import BadConfigFile, line_of, shown
from strandline.collections.errors import BadCollections
from strandline.collections.settings import CollectionsSettings
from strandline.late_import import LateModule
from strandline.nearest_name import did_you_mean

if TYPE_CHECKING:
    from strandline.collections import config_files
else:
    config_files = LateModule("strandline.collections.config_files")

S = TypeVar("S", bound=msgspec.Struct)

#: Options of a collection that are accepted and have no effect, with the reason.
_INERT = {
    "keyring_path": "a keyring is a regular document and requires its own collection",
    "force_full_fetch": "each pull names its own bounds",
}
_RESTRICTIONS = "restrictions by identity are not supported; assign roles with a role enricher instead"
#: An option of earlier Starfish servers. Without it, what its clients push would be stored as regular documents.
_QUEUE_ONLY = "was replaced by appendOnly (by_timestamp) with persist false"


class ConfigReader:
    """Reads from several sources into one configuration."""

    def __init__(self) -> None:
        self._errors: list[str] = []
        self._warnings: list[str] = []
        self._collections: list[Collection] = []
        self._namespaces: dict[str, list[Collection]] = {}
        self._rate_limit: RateLimit | None = None
        #: Whether unknown names cause a warning, as in a file of Starfish, or an error.
        self._lenient = False
        #: By the start of messages about a collection of a file: its place there, and whether its names are in camel
        #: case.
        self._places: dict[str, tuple[str, bool]] = {}

    def config(
        self, settings: CollectionsSettings | None = None, *, has_role_functions: bool = True
    ) -> CollectionsConfig:
        """The configuration. Raises :class:`BadCollections` with all errors in it."""
        config = CollectionsConfig(
            collections=tuple(self._collections),
            namespaces={name: tuple(collections) for name, collections in self._namespaces.items()},
            rate_limit=self._rate_limit,
            settings=CollectionsSettings() if settings is None else settings,
        )
        errors = list(self._errors)
        try:
            check(config)
        except BadCollections as error:
            errors += map(self._as_written, error.errors)
        if errors:
            raise BadCollections(errors, self._warnings)
        doubts = warnings_about(config, has_role_functions=has_role_functions)
        return msgspec.structs.replace(config, warnings=(*self._warnings, *doubts))

    def _as_written(self, message: str) -> str:
        """A message about a collection, with its place in the file and the spelling there."""
        for start, (place, in_camel_case) in self._places.items():
            if message.startswith(f"{start}: "):
                why = message[len(start) :]
                return place + (_SNAKE_CASE.sub(lambda name: _CAMEL_CASE[name[0]], why) if in_camel_case else why)
        return message

    # --- the sources -------------------------------------------------------------------------------------------

    def read_tables(self, tables: Mapping[str, Any]) -> None:
        """Read the tables ``collection``, ``namespace`` and ``rate_limit`` of a settings file."""
        self._lenient = False
        if "rate_limit" in tables:
            self.read_rate_limit("collections.rate_limit", tables["rate_limit"])
        self._collections += self._read_list("collections.collection", tables.get("collection", []))
        namespaces = self._table("collections.namespace", tables.get("namespace", {}))
        for name, namespace in namespaces.items():
            where = f"collections.namespace.{name}"
            given = self._table(where, namespace)
            for key in given:
                if key == "restrictions":
                    self._errors.append(f"{where}: {_RESTRICTIONS}")
                elif key != "collection":
                    self._errors.append(f"{where}: unknown key {key!r}; declare collections as [[{where}.collection]]")
            self._add_namespace(name, self._read_list(f"{where}.collection", given.get("collection", [])))

    def read_file(self, path: Path) -> None:
        """Read a configuration file of Starfish, in JSON or YAML."""
        try:
            document = config_files.read_config_file(path)
        except BadConfigFile as error:
            self._errors.append(str(error))
            return
        self._lenient = True
        document = self._table(str(path), document)
        if document.get("version") != 1:
            at = line_of(document, "version")
            self._errors.append(f"{path}: version{at} is {shown(document.get('version'))}; expected 1")
        self._note_unknown(str(path), document, ("version", "collections", "namespaces", "rateLimit", "restrictions"))
        if document.get("rateLimit") is not None:
            self.read_rate_limit(f"{path}: rateLimit", document["rateLimit"])
        self._collections += self._read_list(f"{path}: collections", document.get("collections", []))
        for name, namespace in self._table(f"{path}: namespaces", document.get("namespaces") or {}).items():
            where = f"{path}: namespace {name}"
            given = self._table(where, namespace)
            self._note_unknown(where, given, ("collections", "restrictions"))
            self._add_namespace(name, self._read_list(f"{where}: collections", given.get("collections", []), name))

    def _note_unknown(self, where: str, given: Mapping[str, Any], known: tuple[str, ...]) -> None:
        """Warn about unknown keys. A Starfish server ignores them, and its plugins store their own keys in this
        file."""
        if given.get("restrictions"):
            self._errors.append(f"{where}: {_RESTRICTIONS}")
        self._warnings += [
            f"{where}: {key}{line_of(given, key)} has no effect{did_you_mean(key, known)}"
            for key in given
            if key not in known
        ]

    def read_declared(self, collections: Iterable[Collection], namespace: str = "", where: str = "Python") -> None:
        """Read collections that were declared in Python. Their values are not validated yet."""
        self._lenient = False
        read = []
        for collection in collections:
            try:
                given = msgspec.to_builtins(collection)
            except (TypeError, ValueError) as error:
                self._errors.append(f'{where}: collection "{collection.name}": {error}')
                continue
            read += self._read_list(where, [given])
        if namespace:
            self._add_namespace(namespace, read)
        else:
            self._collections += read

    def _add_namespace(self, name: str, collections: list[Collection]) -> None:
        self._namespaces.setdefault(name, []).extend(collections)

    # --- values ------------------------------------------------------------------------------------------------

    def read_rate_limit(self, where: str, given: object) -> None:
        limit = self._read_struct(RateLimit, where, given)
        if limit is not None and self._rate_limit not in (None, limit):
            self._errors.append(f"{where}: another limit for all collections is declared with different values")
        self._rate_limit = self._rate_limit or limit

    def _read_list(self, where: str, given: object, namespace: str = "") -> list[Collection]:
        if not isinstance(given, list | tuple):
            self._errors.append(f"{where} is {shown(given)}; expected a list of collections")
            return []
        read = []
        for number, one in enumerate(given, 1):
            name = one.get("name") if isinstance(one, dict) else None
            named = f'collection "{name}"' if isinstance(name, str) else f"collection {number}"
            place = f"{where}: {named}{line_of(one)}"
            collection = self._read_struct(Collection, place, one)
            if collection is not None:
                read.append(collection)
                if self._lenient:
                    self._places[start_of(namespace, collection)] = place, not any("_" in key for key in one)
        return read

    def _table(self, where: str, given: object) -> dict[str, Any]:
        if isinstance(given, dict):
            return given
        self._errors.append(f"{where} is {shown(given)}; expected a table")
        return {}

    def _read_struct(self, struct: type[S], where: str, given: object) -> S | None:
        """Read a struct. Returns None if it has errors, which are added to the list of errors."""
        if not isinstance(given, dict):
            self._errors.append(f"{where} is {shown(given)}; expected a table")
            return None
        before, chosen = len(self._errors), dict[str, Any]()
        fields = msgspec.structs.fields(struct)
        # Of the two spellings, the first is suggested for a misspelt name.
        spellings = ("encode_name", "name") if self._lenient else ("name", "encode_name")
        known = {getattr(field, spelling): field for field in fields for spelling in spellings}
        for key, value in given.items():
            field, at = known.get(key), line_of(given, key)
            if field is None:
                self._unknown(struct, where, key, value, known, at)
            elif field.name in chosen:
                self._errors.append(f"{where}: {field.name}{at} is given twice, in both spellings")
            elif value is not None:
                chosen[field.name] = self._read_value(
                    struct, field, f"{where}: {key if self._lenient else field.name}{at}", value
                )
        for field in fields:
            if field.required and field.name not in chosen:
                name = field.encode_name if self._lenient else field.name
                self._errors.append(f"{where}: {name} is missing")
        return struct(**chosen) if len(self._errors) == before else None

    def _read_value(
        self, struct: type[msgspec.Struct], field: msgspec.structs.FieldInfo, where: str, value: Any
    ) -> Any:
        nested = _NESTED.get((struct, field.name))
        if nested is not None:
            return nested(self, where, value)
        try:
            return msgspec.convert(value, field.type)
        except msgspec.ValidationError:
            self._errors.append(f"{where} is {shown(value)}; expected {_expected(field.type)}")
            return None

    def _read_append_only(self, where: str, value: Any) -> AppendOnly | None:
        if isinstance(value, bool):
            return AppendOnly() if value else None
        given = value
        if isinstance(value, dict):
            value = copy(value)
            strategy = value.pop("type", "by_timestamp")
            if strategy != "by_timestamp":
                at = line_of(given, "type")
                self._errors.append(f"{where}: type{at} is {shown(strategy)}; expected by_timestamp")
        return self._read_struct(AppendOnly, where, value)

    def _read_limits(self, where: str, value: Any) -> CollectionRateLimit | None:
        if isinstance(value, bool):
            return CollectionRateLimit() if value else None
        return self._read_struct(CollectionRateLimit, where, value)

    def _read_queue(self, where: str, value: Any) -> QueueEvents | None:
        if isinstance(value, bool):
            return QueueEvents() if value else None
        return self._read_struct(QueueEvents, where, value)

    def _read_permissions(self, where: str, value: Any) -> dict[str, FieldPermission]:
        read = {}
        for field, given in self._table(where, value).items():
            permission = self._read_struct(FieldPermission, f"{where}.{field}{line_of(value, field)}", given)
            if permission is not None:
                read[field] = permission
        return read

    def _read_rule(self, where: str, value: Any) -> RateRule | None:
        return self._read_struct(RateRule, where, value)

    def _read_dimension(self, where: str, value: Any) -> RateDimension | None:
        return self._read_struct(RateDimension, where, value)

    def _unknown(
        self, struct: type[msgspec.Struct], where: str, key: str, value: object, known: Mapping[str, Any], at: str
    ) -> None:
        if struct is Collection:
            inert = _INERT.get(_snake(key))
            if inert is not None:
                self._warnings.append(f"{where}: {key}{at} has no effect: {inert}")
                return
            if key == "restrictions":
                if value:
                    self._errors.append(f"{where}: {_RESTRICTIONS}")
                return
            if key == "queueOnly" and value is not False:
                self._errors.append(f"{where}: {key}{at} {_QUEUE_ONLY}")
                return
        near = did_you_mean(key, known)
        if self._lenient:
            self._warnings.append(f"{where}: {key}{at} has no effect{near}")
        else:
            self._errors.append(f"{where}: unknown key {key!r}{at}{near}")


_NESTED: dict[tuple[type[msgspec.Struct], str], Callable[[ConfigReader, str, Any], object]] = {
    (Collection, "append_only"): ConfigReader._read_append_only,
    (Collection, "rate_limit"): ConfigReader._read_limits,
    (Collection, "queue"): ConfigReader._read_queue,
    (Collection, "field_permissions"): ConfigReader._read_permissions,
    (CollectionRateLimit, "push"): ConfigReader._read_rule,
    (CollectionRateLimit, "pull"): ConfigReader._read_rule,
    (CollectionRateLimit, "list"): ConfigReader._read_rule,
    (RateRule, "identity"): ConfigReader._read_dimension,
    (RateRule, "ip"): ConfigReader._read_dimension,
}


#: The options of the checks, and how files of Starfish spell them.
_CAMEL_CASE = {
    field.name: field.encode_name
    for struct in (Collection, AppendOnly, FieldPermission, QueueEvents, RateLimit)
    for field in msgspec.structs.fields(struct)
    if field.name != field.encode_name
}
_SNAKE_CASE = re.compile(rf"\b(?:{'|'.join(_CAMEL_CASE)})\b")


def _snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)


def _expected(type: Any) -> str:
    """The description of a type, which may be in a union with None."""
    for part in (type, *get_args(type)):
        for meta in getattr(part, "__metadata__", ()):
            if isinstance(meta, msgspec.Meta) and meta.description is not None:
                return meta.description
    return str(type)
