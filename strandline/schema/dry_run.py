"""What an update of a registry would do to a log, without installing it: the configuration before and after, which of
the last records a writer could not append any more, and the values that searchable fields find in them.

Registry and fields are those that an installation makes: a record is rejected here if it would be rejected then, and a
field has the values that a search would find.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from strandline.query.config import Field, Kind
from strandline.query.inference import EXAMPLE_CHARACTERS
from strandline.query.values import Value, format_date, raw_values_of, values_of
from strandline.schema.errors import SchemaError
from strandline.schema.registry import Registry
from strandline.schema.routing import parse_routing_key
from strandline.schema.updates import parse_search, parse_update, updated
from strandline.schema.validation import Validation, bounded

#: The rejected records, and the values of a field, that are shown.
MAX_REJECTIONS = 20
MAX_EXAMPLES = 3

_decode = msgspec.json.Decoder().decode


class Rejection(msgspec.Struct, frozen=True, kw_only=True):
    seq: int
    message: str


class FieldExample(msgspec.Struct, frozen=True, kw_only=True):
    seq: int
    value: str | int | float | bool


class FieldDryRun(msgspec.Struct, kw_only=True):
    """``records`` of the sample have a value in the field, ``values`` in all. In ``unfit`` others, the member is there
    and has no value of this kind."""

    name: str
    kind: Kind
    records: int = 0
    values: int = 0
    unfit: int = 0
    examples: list[FieldExample] = []
    unfit_examples: list[FieldExample] = []


class DryRun(msgspec.Struct, kw_only=True):
    """``refused`` says why the server would refuse the update. ``rejected`` is None if the update changes neither the
    schema nor the routing key, so that no record is checked. ``complete`` is False if the time was over before all
    records were examined: the newest come first."""

    refused: str | None
    installed: dict[str, Any]
    proposed: dict[str, Any]
    records: int = 0
    first_seq: int | None = None
    last_seq: int | None = None
    complete: bool = True
    rejected: int | None = None
    rejections: list[Rejection] = []
    fields: list[FieldDryRun] = []


def dry_run(
    before: Registry,
    body: bytes,
    next_sequence: int,
    seqs: Sequence[int],
    data: Sequence[bytes],
    over: Callable[[], bool] = lambda: False,
) -> DryRun:
    """Try an update for a log whose next record gets this sequence number, with some of its records, oldest first.
    ``over`` says that the time is over. Raises SchemaError for an update that is not valid in itself."""
    update = parse_update(body)
    with bounded():
        if "schema" in update:
            Validation(update["schema"])
        after = _candidate(before, update)
    refused = None
    try:
        with bounded():
            installed = updated(before, update, next_sequence)
        lens = installed.lenses.get(before.current_version)
    except SchemaError as error:
        refused, lens = str(error), None
    proposed = _configuration(after) | ({} if lens is None else {"lens": lens.document})
    found = DryRun(refused=refused, installed=_configuration(before), proposed=proposed)
    checks = "schema" in update or "routingKey" in update
    if checks:
        found.rejected = 0
    fields = [] if after.search is None else list(after.search.fields.values())
    found.fields = [FieldDryRun(name=field.name, kind=field.kind) for field in fields]
    for seq, payload, version in reversed(list(zip(seqs, data, before.versions_at(seqs), strict=True))):
        if over():
            found.complete = False
            break
        found.records += 1
        found.first_seq, found.last_seq = seq, found.last_seq or seq
        try:
            document = _decode(payload)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            if checks:
                _reject(found, seq, "not valid JSON")
            continue
        if checks:
            _check(found, after, seq, document)
        # A search reads a record of an older version where that version has the field.
        for field, shown in zip(fields, found.fields, strict=True):
            _extract(shown, field, seq, document, version)
    return found


def _candidate(before: Registry, update: dict[str, Any]) -> Registry:
    """The registry with the new parts, also if it cannot be installed in this log."""
    after = before
    if "search" in update:
        after = replace(after, search=parse_search(update["search"]))
    if "routingKey" in update:
        after = replace(after, routing_key=parse_routing_key(update["routingKey"]))
    if "schema" in update:
        version = before.current_version + 1
        schemas = {**before.schemas, version: update["schema"]}
        after = replace(after, current_version=version, schemas=schemas)
    return after


def _configuration(registry: Registry) -> dict[str, Any]:
    """What can be installed, as it is shown."""
    shown: dict[str, Any] = {}
    if registry.current_version:
        shown["schema"] = registry.schemas[registry.current_version]
    if registry.routing_key is not None:
        shown["routingKey"] = msgspec.to_builtins(registry.routing_key)
    if registry.search is not None:
        shown["search"] = registry.search.document()
    return shown


def _check(found: DryRun, after: Registry, seq: int, document: Any) -> None:
    try:
        after.check([document])
        after.keys_of([document], None)
    except SchemaError as error:
        _reject(found, seq, str(error))


def _reject(found: DryRun, seq: int, message: str) -> None:
    assert found.rejected is not None
    found.rejected += 1
    if len(found.rejections) < MAX_REJECTIONS:
        found.rejections.append(Rejection(seq=seq, message=message))


def _extract(shown: FieldDryRun, field: Field, seq: int, document: Any, version: int) -> None:
    values = values_of(field, document, version)
    if values:
        shown.records += 1
        shown.values += len(values)
        _exemplify(shown.examples, seq, (_as_shown(field, value) for value in values))
    elif raw := raw_values_of(field, document, version):
        shown.unfit += 1
        _exemplify(shown.unfit_examples, seq, raw)


def _exemplify(examples: list[FieldExample], seq: int, values: Iterable[Value]) -> None:
    """Add values that are not among the examples yet."""
    if len(examples) == MAX_EXAMPLES:
        return
    for value in values:
        if isinstance(value, str) and len(value) > EXAMPLE_CHARACTERS:
            value = f"{value[:EXAMPLE_CHARACTERS]}…"
        if len(examples) < MAX_EXAMPLES and all(value != one.value for one in examples):
            examples.append(FieldExample(seq=seq, value=value))


def _as_shown(field: Field, value: Value) -> Value:
    return format_date(value) if field.kind == "date" and isinstance(value, int) else value
