"""``GET /config``: which collections there are, for clients that want to know."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from strandline.faces.collections.config import Collection
from strandline.faces.collections.context import CollectionsContext
from strandline.faces.collections.permitting import Caller, role_filtered
from strandline.faces.collections.problems import Refused, no_such_path
from strandline.faces.web import Call, Reply

Shown = Callable[[Collection], bool]


class Telling:
    def __init__(self, context: CollectionsContext) -> None:
        self._context = context
        self._everything = _rendered(context, lambda collection: True)

    async def config(self, call: Call) -> Reply:
        """GET /config"""
        endpoint = self._context.settings.config_endpoint
        if endpoint == "off":
            raise no_such_path()
        if endpoint == "public":
            return Reply(self._everything)
        roles = (await self._caller(call)).roles
        return Reply(_rendered(self._context, lambda collection: role_filtered(collection, roles)))

    async def _caller(self, call: Call) -> Caller:
        """Who asks; somebody whose certificate is no good gets to see nothing."""
        try:
            caller = self._context.admission.identify(call, self._context.hub.wall())
            return caller if isinstance(caller, Caller) else await caller
        except Refused:
            return Caller()


def _rendered(context: CollectionsContext, shown: Shown) -> bytes:
    config = context.config
    answer: dict[str, Any] = {"collections": _infos(config.collections, shown)}
    if config.namespaces:
        answer["namespaces"] = {
            name: {"collections": _infos(collections, shown)} for name, collections in config.namespaces.items()
        }
    return msgspec.json.encode(answer)


def _infos(collections: Iterable[Collection], shown: Shown) -> list[dict[str, Any]]:
    return [info_of(collection) for collection in collections if shown(collection)]


def info_of(collection: Collection) -> dict[str, Any]:
    info: dict[str, Any] = {
        "name": collection.name,
        "maxBodyBytes": collection.max_body_bytes,
        "encryption": collection.encryption,
        "allowedMimeTypes": list(collection.allowed_mime_types),
    }
    if collection.pull_only:
        info["pullOnly"] = True
    if collection.push_only:
        info["pushOnly"] = True
    if collection.append_only is not None:
        info["appendOnly"] = {"type": "by_timestamp", **msgspec.to_builtins(collection.append_only)}
    if collection.ttl_ms is not None:
        info["ttlMs"] = collection.ttl_ms
    return info
