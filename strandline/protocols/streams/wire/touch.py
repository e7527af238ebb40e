"""Live invalidation: the bodies and the answers of ``touch/wait`` and ``touch/templates/activate``. The answer of
``touch/meta`` is declared in :mod:`strandline.delivery.invalidation.live`."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from strandline.delivery.invalidation.templates import MAX_FIELDS, Declaration, TemplateField
from strandline.delivery.invalidation.waiters import Kind
from strandline.protocols.streams.wire.values import Digits, Number, StreamError
from strandline.schema.options import Name

MAX_TIMEOUT_MS = 120_000
DEFAULT_TIMEOUT_MS = 30_000
MAX_KEYS = 1024
MAX_EXACT_KEYS = 16
MAX_TEMPLATES = 256

Ttl = Annotated[int, Meta(ge=1, le=1 << 53)]


class FieldBody(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    name: Name
    encoding: str


class TemplateBody(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    entity: Name
    fields: Annotated[list[FieldBody], Meta(min_length=1, max_length=MAX_FIELDS)]

    def declaration(self) -> Declaration:
        return Declaration(self.entity, tuple(TemplateField(field.name, field.encoding) for field in self.fields))


TemplateBodies = Annotated[list[TemplateBody], Meta(min_length=1, max_length=MAX_TEMPLATES)]


class ActivateBody(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    templates: TemplateBodies
    inactivity_ttl_ms: Ttl | None = None


class WaitBody(msgspec.Struct, rename="camel"):
    cursor: str
    keys: Annotated[list[Name], Meta(max_length=MAX_KEYS)] = []
    key_ids: Annotated[list[Annotated[int, Meta(ge=0, le=(1 << 32) - 1)]], Meta(max_length=MAX_KEYS)] = []
    timeout_ms: Annotated[int, Meta(ge=0, le=MAX_TIMEOUT_MS)] = DEFAULT_TIMEOUT_MS
    interest_mode: Literal["fine", "coarse"] = "fine"
    exact: bool = False
    template_ids_used: Annotated[list[str], Meta(max_length=MAX_KEYS)] = []
    declare_templates: TemplateBodies | None = None
    inactivity_ttl_ms: Ttl | None = None


# --- answers ---------------------------------------------------------------------------------------------------------


class WaitAnswer(msgspec.Struct, rename="camel", kw_only=True):
    """``touched`` and ``stale`` tell the outcome; a stale answer also has ``epoch``, ``generation`` and ``error``."""

    touched: bool | UnsetType = UNSET
    stale: bool | UnsetType = UNSET
    cursor: str
    epoch: str | UnsetType = UNSET
    generation: Number | UnsetType = UNSET
    effective_wait_kind: Kind
    bucket_max_source_offset_seq: Digits
    flush_at_ms: Number
    bucket_start_ms: Number
    error: StreamError | UnsetType = UNSET


class ActivatedTemplate(msgspec.Struct, rename="camel", kw_only=True):
    template_id: str
    state: Literal["active"] = "active"
    active_from_touch_offset: str


class DeniedTemplate(msgspec.Struct, rename="camel"):
    template_id: str
    reason: str


class TemplateLimits(msgspec.Struct, rename="camel"):
    max_active_templates_per_stream: Number
    max_active_templates_per_entity: Number


class ActivateAnswer(msgspec.Struct):
    activated: list[ActivatedTemplate]
    denied: list[DeniedTemplate]
    limits: TemplateLimits
