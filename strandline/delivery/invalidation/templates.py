"""Templates: the fields of an entity that clients compare with arguments, and the encoding of each argument.

Row keys are computed for active templates only. Declaring a template activates it, and it stays active while clients
keep naming it. Activation is not retroactive: records that are already processed are not processed again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from strandline.delivery.invalidation.keys import (
    ENCODINGS,
    NUL,
    RowKeys,
    hexadecimal,
    in_order,
    template_id,
    template_key,
)
from strandline.schema.profiles.touch_settings import TemplateSettings

MAX_FIELDS = 3
_MINUTE_MS = 60_000
#: The number of retired templates whose entity is remembered, so that clients that still name them learn of changes.
MAX_RETIRED = 4096
#: The template id in the refusal of an invalid declaration.
NO_TEMPLATE = hexadecimal(0)


class TemplateField(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    encoding: str


class Declaration(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A template as clients declare it."""

    entity: str
    fields: tuple[TemplateField, ...]

    @property
    def valid(self) -> bool:
        names = {field.name for field in self.fields}
        return (
            self.entity != ""
            and 1 <= len(self.fields) <= MAX_FIELDS
            and len(names) == len(self.fields)
            and "" not in names
            and all(field.encoding in ENCODINGS for field in self.fields)
        )

    @property
    def identifier(self) -> int:
        return template_id(self.entity, (field.name for field in self.fields))


class Template:
    """An active template. Generations are those of the touch journal."""

    __slots__ = ("_fields", "active_from", "declaration", "entity", "id", "key", "keys", "last_seen", "names",
                 "skipped", "ttl_ms")  # fmt: skip

    def __init__(self, declaration: Declaration, ttl_ms: int, last_seen: float, active_from: int) -> None:
        self.declaration = declaration
        self.entity = declaration.entity
        self.id = declaration.identifier
        self.key = template_key(self.id)
        self.keys = RowKeys(self.id)
        self.ttl_ms = ttl_ms
        self.last_seen = last_seen
        #: Changes up to and including this generation were not evaluated for this template.
        self.active_from = active_from
        #: The last generation in which row keys were skipped because no client had shown interest in them.
        self.skipped = -1
        encodings = {field.name: field.encoding for field in declaration.fields}
        ordered = in_order(encodings)
        self.names = frozenset(ordered)
        self._fields = tuple((name, ENCODINGS[encodings[name]]) for name in ordered)

    def arguments(self, row: dict[str, Any]) -> bytes | None:
        """The encoded fields of the row, or None if a value equals no argument. Raises KeyError if the row lacks a
        field."""
        parts = []
        for name, encode in self._fields:
            part = encode(row[name])
            if part is None:
                return None
            parts.append(part)
        return NUL.join(parts)


class Activation(msgspec.Struct):
    """The result of declarations. ``evicted`` templates were retired to make room."""

    activated: list[Template]
    denied: list[tuple[str, str]]
    evicted: list[Template]


class StoredTemplate(msgspec.Struct, frozen=True, array_like=True):
    """A template as it is stored. ``seen`` is in milliseconds since 1970."""

    entity: str
    fields: tuple[tuple[str, str], ...]
    ttl_ms: int
    seen: int


class Templates:
    """The templates of one log, least recently named first. The caller passes ``now`` in milliseconds."""

    def __init__(self, settings: TemplateSettings) -> None:
        self._settings = settings
        self._active: dict[int, Template] = {}
        self._by_entity: dict[str, dict[int, Template]] = {}
        self._retired: dict[int, str] = {}
        self._minute = float("-inf")
        self._activated_in_minute = 0

    def __len__(self) -> int:
        return len(self._active)

    def get(self, identifier: int) -> Template | None:
        return self._active.get(identifier)

    def of(self, entity: str) -> dict[int, Template] | None:
        """The active templates of an entity."""
        return self._by_entity.get(entity)

    def entity_of(self, identifier: int) -> str | None:
        """The entity of a template that is active or was retired recently."""
        template = self._active.get(identifier)
        return self._retired.get(identifier) if template is None else template.entity

    # --- activation ------------------------------------------------------------------------------------------------

    def activate(
        self, declarations: Iterable[Declaration], ttl_ms: int | None, now: float, active_from: int
    ) -> Activation:
        """Activate the templates, or refresh those that are active."""
        ttl_ms = self._settings.default_inactivity_ttl_ms if ttl_ms is None else ttl_ms
        outcome = Activation([], [], [])
        for declaration in declarations:
            if not declaration.valid:
                outcome.denied.append((NO_TEMPLATE, "invalid"))
                continue
            template = self._active.get(declaration.identifier)
            if template is not None:
                if set(template.declaration.fields) != set(declaration.fields):
                    # With other encodings, the keys that clients wait on would no longer be touched.
                    outcome.denied.append((hexadecimal(template.id), "invalid"))
                    continue
                template.ttl_ms = ttl_ms
                self._see(template, now)
            elif self._admit(now):
                template = Template(declaration, ttl_ms, now, active_from)
                outcome.evicted += self._make_room(template.entity)
                self._add(template)
            else:
                outcome.denied.append((hexadecimal(declaration.identifier), "rate_limited"))
                continue
            outcome.activated.append(template)
        return outcome

    def _admit(self, now: float) -> bool:
        if now - self._minute >= _MINUTE_MS:
            self._minute, self._activated_in_minute = now, 0
        self._activated_in_minute += 1
        return self._activated_in_minute <= self._settings.activation_rate_per_minute

    def _make_room(self, entity: str) -> list[Template]:
        evicted = []
        group = self._by_entity.get(entity)
        if group is not None and len(group) >= self._settings.max_active_per_entity:
            evicted.append(next(iter(group.values())))
        elif len(self._active) >= self._settings.max_active_per_stream:
            evicted.append(next(iter(self._active.values())))
        for template in evicted:
            self._retire(template)
        return evicted

    def _add(self, template: Template) -> None:
        self._active[template.id] = template
        self._by_entity.setdefault(template.entity, {})[template.id] = template
        self._retired.pop(template.id, None)

    # --- use and retirement ----------------------------------------------------------------------------------------

    def see(self, identifier: int, now: float) -> Template | None:
        """Record that a client names the template. Returns None if it is not active."""
        template = self._active.get(identifier)
        if template is not None:
            self._see(template, now)
        return template

    def _see(self, template: Template, now: float) -> None:
        template.last_seen = now
        for order in (self._active, self._by_entity[template.entity]):
            order[template.id] = order.pop(template.id)

    def retire_inactive(self, now: float, in_use: Iterable[int]) -> list[Template]:
        """Retire the templates that were not named within their TTL and that no client waits on."""
        in_use = set(in_use)
        inactive = [
            template
            for template in self._active.values()
            if now - template.last_seen >= template.ttl_ms and template.id not in in_use
        ]
        for template in inactive:
            self._retire(template)
        return inactive

    def _retire(self, template: Template) -> None:
        del self._active[template.id]
        group = self._by_entity[template.entity]
        del group[template.id]
        if not group:
            del self._by_entity[template.entity]
        self._retired[template.id] = template.entity
        if len(self._retired) > MAX_RETIRED:
            del self._retired[next(iter(self._retired))]

    # --- storage ---------------------------------------------------------------------------------------------------

    def stored(self, offset_ms: float) -> list[Any]:
        """The templates to store. ``offset_ms`` converts a time of the clock to milliseconds since 1970."""
        stored: list[Any] = msgspec.to_builtins(
            [
                StoredTemplate(
                    template.entity,
                    tuple((field.name, field.encoding) for field in template.declaration.fields),
                    template.ttl_ms,
                    round(template.last_seen + offset_ms),
                )
                for template in self._active.values()
            ]
        )
        return stored

    def load(self, stored: object, offset_ms: float, now: float) -> None:
        """Activate stored templates, within the current limits."""
        for one in msgspec.convert(stored, list[StoredTemplate]):
            declaration = Declaration(one.entity, tuple(TemplateField(*field) for field in one.fields))
            if declaration.valid and len(self._active) < self._settings.max_active_per_stream:
                self._add(Template(declaration, one.ttl_ms, min(one.seen - offset_ms, now), 0))
