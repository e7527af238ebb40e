"""Versions of a table's schema: how they are recorded, and how rows of earlier versions are read.

Every row says which version it was written with, in its meta, and after an edit in its data. Reads return the rows of
the current version as they are stored. They upgrade older rows: through the lenses of the versions in between, with
the defaults of new fields filled in and removed fields left out.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from strandline.engine import Batch, Config, Engine, Log, Page, Record
from strandline.schema.errors import SchemaError
from strandline.schema.evolution import evolve
from strandline.schema.lenses import Lens, Operation, parse_lens
from strandline.schema.promotion import compile_steps
from strandline.schema.structure import same
from strandline.schema.validation import bounded
from strandline.tables.errors import BadDeclaration
from strandline.tables.rows import add_stamps, split_stamps, version_in
from strandline.tables.schema_forms import (
    Completion,
    SchemaForm,
    Unknown,
    accepted_form,
    completed_form,
    completion,
    form_of,
    incompatibilities,
)

if TYPE_CHECKING:
    from strandline.tables.declaration import TableDeclaration

log = logging.getLogger(__name__)

#: The log of the versions of all tables. It belongs to the server.
SCHEMAS = "_table_schemas"
_CONFIG = Config(durability="fsync")

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


class SchemaVersion(Struct, frozen=True, kw_only=True):
    """A version of the schema of a table, from the time ``at`` on.

    ``lens`` says how rows of the version before become rows of this one; it is None if they only get defaults.
    ``defaults`` are the values of fields whose default is computed: every old row gets the same value.
    """

    table: str
    version: int
    at: int
    schema: dict[str, Any]
    unknown: Unknown
    defaults: dict[str, Any] = {}
    lens: dict[str, Any] | None = None

    @property
    def form(self) -> SchemaForm:
        return form_of(self.schema)

    def operations(self) -> tuple[Operation, ...]:
        return () if self.lens is None else parse_lens(self.lens).operations

    def completion(self) -> Completion:
        """Fills in the defaults of this version, and drops the fields that it does not have."""
        complete, defaults = completion(self.form, self.unknown), self.defaults

        def run(payload: Any) -> Any:
            for name, default in defaults.items():
                payload.setdefault(name, default)
            return payload if complete is None else complete(payload)

        return run


class SchemaVersions:
    """The versions of one table. ``current`` is the one that the declaration has; there may be later ones, recorded
    before the program was rolled back."""

    def __init__(self, recorded: Sequence[SchemaVersion], current: int) -> None:
        self.recorded = tuple(recorded)
        self.current = current
        #: The version that edited rows note in their data; None while there is only the first one.
        self.noted = current if recorded[-1].version > 1 else None
        self._steps: dict[int, Completion] = {}
        self._kept: dict[str, bool] = {}
        self._warned = False

    def open(self, log: Log | None) -> Log | None:
        """The log of rows, as reads with this schema see it."""
        return log if log is None or self.noted is None else VersionedLog(log, self)

    def keep(self, fields: Sequence[str]) -> bool:
        """Whether the texts in these fields are the same in every row as it is stored and in the current version. An
        index of the stored rows is right then."""
        for name in fields:
            if name not in self._kept:
                self._kept[name] = self.noted is None or self._keeps(name)
        return all(self._kept[name] for name in fields)

    def _keeps(self, name: str) -> bool:
        known = False
        for number, each in enumerate(self.recorded):
            if each.version > self.current:
                break
            form = each.form
            if number and any(_may_change(operation, name) for operation in each.operations()):
                return False
            if not isinstance(form, dict) or not _ALTERNATIVES.isdisjoint(form):
                return False
            if name in form.get("properties", {}):
                known = True
                if not _is_left_alone(form["properties"][name], each.unknown) or each.defaults.get(name):
                    return False
            elif known:
                return False  # upgrades drop the field
        return True

    def data(self, meta: bytes | None, stored: bytes) -> bytes:
        """The data of a row in the current version."""
        payload, version, updated = split_stamps(stored)
        if version is None:
            version = version_in(meta)
        return stored if version >= self.current else self._upgraded(version, stored, payload, updated)

    def _upgraded(self, version: int, stored: bytes, old: bytes, updated: int | None) -> bytes:
        try:
            payload = self._step(version)(_decode(old))
        except (SchemaError, msgspec.MsgspecError, RecursionError) as error:
            if not self._warned:
                self._warned = True
                table = self.recorded[0].table
                log.warning("showing rows of table %r as stored: cannot upgrade version %d: %s", table, version, error)
            return stored
        return _encode(payload if updated is None else add_stamps(payload, None, updated))

    def _step(self, version: int) -> Completion:
        """The function from payloads of a version to those of the current one."""
        step = self._steps.get(version)
        if step is None:
            step = self._steps[version] = _all(list(self._parts(version)))
        return step

    def _parts(self, version: int) -> Iterator[Completion]:
        for each in self.recorded:
            if each.version == version:
                yield each.completion()
            elif version < each.version <= self.current:
                operations = each.operations()
                if operations:
                    yield compile_steps(operations)
                yield each.completion()


#: What a payload is depends on its other members.
_ALTERNATIVES = frozenset({"allOf", "anyOf", "oneOf"})


def _may_change(operation: Operation, field: str) -> bool:
    """Whether an operation of a lens may change a field of the payload."""
    paths = (getattr(operation, name, None) for name in ("source", "target", "path", "host"))
    return any(path is not None and path[:1] in ((), (field,)) for path in paths)


def _is_left_alone(form: SchemaForm, unknown: Unknown) -> bool:
    """Whether completing a payload neither changes the value of a field with this form nor adds a text."""
    return not isinstance(form, dict) or (not form.get("default") and completion(form, unknown) is None)


def _all(parts: list[Completion]) -> Completion:
    def run(payload: Any) -> Any:
        for part in parts:
            payload = part(payload)
        return payload

    return run


class VersionedLog(Log):
    """A log of rows whose reads return every row in the current version."""

    __slots__ = ("_versions",)

    def __init__(self, log: Log, versions: SchemaVersions) -> None:
        super().__init__(log.engine, log.book)
        self._versions = versions

    def read(self, *arguments: Any, **options: Any) -> Page:
        return self._upgraded(super().read(*arguments, **options))

    def read_resident(self, *arguments: Any, **options: Any) -> Page | None:
        page = super().read_resident(*arguments, **options)
        return None if page is None else self._upgraded(page)

    def read_back(self, *arguments: Any, **options: Any) -> Page:
        return self._upgraded(super().read_back(*arguments, **options))

    def read_back_resident(self, *arguments: Any, **options: Any) -> Page | None:
        page = super().read_back_resident(*arguments, **options)
        return None if page is None else self._upgraded(page)

    def read_hidden(self, seq: int) -> Record | None:
        record = super().read_hidden(seq)
        return None if record is None else record._replace(data=self._versions.data(record.meta, record.data))

    def _upgraded(self, page: Page) -> Page:
        page.data = list(map(self._versions.data, page.metas, page.data))
        return page


# --- recording ------------------------------------------------------------------------------------------------------


def open_versions(engine: Engine, declarations: Sequence[TableDeclaration]) -> dict[str, SchemaVersions]:
    """The versions of each table. A schema that has changed is recorded as a new version.

    Raises BadDeclaration, and records nothing, if rows of the version before do not fit the new one.
    """
    recorded: dict[str, list[SchemaVersion]] = {each.name: [] for each in declarations}
    for version in _read(engine):
        if version.table in recorded:
            recorded[version.table].append(version)
    found: dict[str, SchemaVersions] = {}
    new: list[SchemaVersion] = []
    for declaration in declarations:
        known = recorded[declaration.name]
        current = _recorded_version(declaration, known)
        if current is None:
            with bounded():
                new.append(_next_version(engine, declaration, known))
            current, known = new[-1].version, [*known, new[-1]]
        found[declaration.name] = SchemaVersions(known, current)
    if new and engine.writable:
        batch = Batch([_encode(version) for version in new], [version.table for version in new])
        log = engine.find(SCHEMAS)
        commit: Any = engine.create(SCHEMAS, _CONFIG, batch=batch) if log is None else log.append(batch)
        commit.wait()
    return found


def _read(engine: Engine) -> Iterator[SchemaVersion]:
    log, after, caught_up = engine.find(SCHEMAS), 0, False
    while log is not None and not caught_up:
        page = log.read(after)
        yield from (_decode_version(data) for data in page.data)
        after, caught_up = page.next_after, page.caught_up


_decode_version = msgspec.json.Decoder(SchemaVersion).decode


def _recorded_version(declaration: TableDeclaration, known: Sequence[SchemaVersion]) -> int | None:
    """The number of the declared schema; None if it is a new version."""
    for version in known:
        lens = declaration.lenses.get(version.version - 1)
        if lens is not None and version is not known[0] and (version.lens or {}).get("ops") != lens.document["ops"]:
            raise BadDeclaration(
                f"the lens of {declaration.name} from version {version.version - 1} cannot be changed, because version "
                f"{version.version} was recorded with another one; GET /tables/{declaration.name}/schema shows it"
            )
    if not known or any(number >= known[-1].version for number in declaration.lenses):
        return None
    schema = declaration.schema
    form = form_of(schema.document)
    for version in reversed(known):
        if version.unknown == schema.unknown and same(version.form, form):
            return version.version
    return None


def _next_version(engine: Engine, declaration: TableDeclaration, known: Sequence[SchemaVersion]) -> SchemaVersion:
    schema, table = declaration.schema, declaration.name
    before = known[-1] if known else None
    latest = 0 if before is None else before.version
    lenses = [lens for number, lens in sorted(declaration.lenses.items()) if number >= latest]
    if before is not None:
        _check_numbers(table, latest, lenses)
    version = SchemaVersion(
        table=table,
        version=lenses[-1].target if lenses else latest + 1,
        at=engine.now(),
        schema=schema.document,
        unknown=schema.unknown,
        defaults=schema.computed_defaults(),
        lens=_joined(table, lenses if before is not None else lenses[-1:]),
    )
    if before is not None and engine.names(f"{table}/", limit=1):
        _check_rows_fit(before, version)
    return version


def _check_numbers(table: str, latest: int, lenses: Sequence[Lens]) -> None:
    """New lenses follow the newest recorded version without a gap: a wrong number would be recorded permanently."""
    for expected, lens in enumerate(lenses, latest):
        if lens.source != expected:
            raise BadDeclaration(
                f"{table} declares a lens from version {lens.source}, but its newest recorded version is {latest}: "
                f"expected a lens from version {expected}"
            )


def _joined(table: str, lenses: Sequence[Lens]) -> dict[str, Any] | None:
    """One lens for several that follow each other."""
    if not lenses:
        return None
    operations = [operation for lens in lenses for operation in lens.document["ops"]]
    return lens_document(table, lenses[0].source, lenses[-1].target, operations)


def lens_document(table: str, source: int, target: int, operations: object) -> dict[str, Any]:
    return {"apiVersion": "durable.lens/v1", "schema": table, "from": source, "to": target, "ops": operations}


def _check_rows_fit(before: SchemaVersion, version: SchemaVersion) -> None:
    table, old = version.table, before.version
    new = accepted_form(version.form)
    form = completed_form(before.form)
    if before.defaults:
        form["required"] = sorted({*form["required"], *before.defaults})
    try:
        form = evolve(form, version.operations())
        problems = list(incompatibilities(form, new))
    except SchemaError as error:
        raise BadDeclaration(
            f"the lens of {table} from version {old} does not fit all rows of that version: {error}"
        ) from None
    if problems and version.lens is not None:
        lens = f"lens from version {old}" if version.version == old + 1 else f"lenses from version {old} on"
        raise BadDeclaration(
            f"after the {lens}, rows of {table} do not fit the new schema: {'; '.join(problems)}. "
            f"Correct the lens, or give new fields a default"
        )
    if problems:
        raise BadDeclaration(
            f"the schema of {table} has changed since version {old}, and rows of that version do not fit it: "
            f"{'; '.join(problems)}. Give new fields a default, or declare how old rows become new ones with "
            f"make_log({table!r}, ..., lenses={{{old}: [operations]}})"
        )


def parse_lenses(table: str, declared: object) -> dict[int, Lens]:
    """The lenses of a declaration by the version that they start from. Raises BadDeclaration."""
    if declared is None:
        return {}
    if not isinstance(declared, Mapping):
        raise BadDeclaration(f"lenses of {table} must be operations by version, as in {{1: [operations]}}")
    lenses: dict[int, Lens] = {}
    for number, operations in declared.items():
        if type(number) is not int or number < 1:
            raise BadDeclaration(f"lenses of {table} must be named by the version before, 1 or more, not {number!r}")
        try:
            # A private copy, so that later changes of the original have no effect.
            plain = msgspec.json.decode(msgspec.json.encode(operations))
            lenses[number] = parse_lens(lens_document(table, number, number + 1, plain))
        except (SchemaError, TypeError, ValueError) as error:
            raise BadDeclaration(f"lens of {table} from version {number}: {error}") from None
    return lenses
