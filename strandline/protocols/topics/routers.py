"""Routers: create, change, get, list and delete."""

from __future__ import annotations

import re
from typing import Any

import msgspec
from msgspec import UNSET

from strandline.delivery.routers import (
    Router,
    RouterCycle,
    RouterDefinition,
    RouterError,
    RouterFanIn,
    RouterFilter,
    RouterRepointed,
)
from strandline.engine.errors import EngineError
from strandline.nearest_name import decode_body
from strandline.protocols.topics.context import Context, performance
from strandline.protocols.topics.errors import (
    ROUTER_CYCLE,
    ROUTER_NOT_FOUND,
    TOPIC_EXISTS_INCOMPATIBLE,
    refuse,
    reply_to,
    topic_not_found,
)
from strandline.protocols.topics.list import cursor_behind, page_size, start_after
from strandline.protocols.topics.match import Match, parse_match
from strandline.protocols.topics.topics import NewTopic, Topic, takes_writes
from strandline.protocols.topics.wire import (
    Guarantee,
    RouterBody,
    RouterDeleted,
    RouterList,
    RouterPut,
    RouterRow,
    RouterState,
)
from strandline.service.access import Access
from strandline.service.http import Call, Handler, Later, Reply, Route, json_reply
from strandline.service.log_config import check_name, default_config
from strandline.service.problems import FORBIDDEN, Refusal, invalid, limit_reached, may_not_touch

#: Like the name of a topic, and with ``>``: by convention a router is named after its topics, "orders->audit".
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:>-]{0,254}", re.ASCII)

_decoder = msgspec.json.Decoder(RouterBody)


class TopicRouters:
    def __init__(self, context: Context) -> None:
        self._context = context
        context.routers.demote_while(lambda: context.admission.pressure.shedding)
        context.routers.spare(lambda log: not takes_writes(log))

    def put(self, call: Call) -> Reply | Later:
        """PUT /v0/routers/{router}"""
        body = decode_body(_decoder, call.body)
        _check_access(call, body.source, body.dest)
        self._visible(call)
        definition = _definition(call.param("router"), body)
        new = self._check(definition, body.create_dest, call.access)
        made = self._create_missing(definition) if new else []
        try:
            commit = self._context.routers.put(definition)
        except EngineError:
            # A router that could not be created leaves no topics behind.
            for topic in made:
                self._context.unmake(topic)
            raise
        return self._context.admission.after(commit, lambda created: _put_reply(call, definition, created))

    def _visible(self, call: Call) -> Router | None:
        """The router that the path names, if it exists; refuses a key that may not access both of its topics."""
        router = self._context.routers.get(call.param("router"))
        if router is not None and not call.access.may_touch_all(router.source.name, router.dest.name):
            message = f"the API key may not access the topics of router {router.name!r}"
            raise Refusal(FORBIDDEN, message, {"router": router.name})
        return router

    def _check(self, definition: RouterDefinition, create_dest: bool, access: Access) -> bool:
        """Whether the router is new; refuses one that is not allowed. Nothing is created before all checks pass."""
        context = self._context
        for name in (definition.source, definition.dest):
            # Other protocols may have created a log with a name that a new topic cannot have.
            if context.topics.find(name) is None:
                check_name(name)
        dest = context.topics.find(definition.dest)
        if dest is None and not create_dest:
            raise topic_not_found(definition.dest)
        try:
            new = context.routers.check(definition)
        except RouterError as error:
            raise _refusal(error, access) from None
        if new and dest is not None:
            dest.check_takes_writes()
        maximum = context.limits.max_routers
        if new and maximum and len(context.routers) >= maximum:
            raise limit_reached("max_routers", maximum)
        return new

    def _create_missing(self, definition: RouterDefinition) -> list[Topic]:
        topics = self._context.topics
        missing = [name for name in (definition.source, definition.dest) if topics.find(name) is None]
        for name in missing:
            self._context.kernel.catalog.check_name(name)
        self._context.engine.quota.check_logs(len(missing))
        return [topics.create(name, NewTopic(default_config()))[0] for name in missing]

    def get(self, call: Call) -> Reply:
        """GET /v0/routers/{router}"""
        routers, name = self._context.routers, call.param("router")
        router = self._visible(call)
        if router is None:
            raise Refusal(ROUTER_NOT_FOUND, f"router {name!r} does not exist", {"router": name})
        routers.catch_up(router.dest)
        return json_reply(
            RouterState(
                **_members(router.definition),
                forwarded_total=router.forwarded_total,
                lag=router.lag,
                performance=performance(call),
            )
        )

    def list(self, call: Call) -> Reply:
        """GET /v0/routers"""
        query = call.query
        found, more = self._context.routers.page(
            query.get("prefix", ""),
            query.get("source"),
            query.get("dest"),
            start_after(call),
            page_size(call),
            call.access.prefixes,
        )
        cursor = cursor_behind(found[-1].name) if more else UNSET
        return json_reply(RouterList([_row(router) for router in found], cursor, performance=performance(call)))

    def delete(self, call: Call) -> Reply | Later:
        """DELETE /v0/routers/{router}"""
        name = call.param("router")
        self._visible(call)
        return self._context.admission.after(
            self._context.routers.remove(name),
            lambda deleted: json_reply(RouterDeleted(name, deleted, performance=performance(call))),
        )


def routes(routing: TopicRouters) -> list[Route]:
    one = "/v0/routers/{router}"
    named = ("router",)
    return [
        _route("GET", "/v0/routers", routing.list, "read"),
        _route("PUT", one, routing.put, "admin", names=named, body="required"),
        _route("GET", one, routing.get, "read", names=named),
        _route("DELETE", one, routing.delete, "delete", names=named),
    ]


def _route(
    method: str, path: str, handler: Handler, scope: str, *, names: tuple[str, ...] = (), body: str = "none"
) -> Route:
    return Route(
        method=method,
        path=path,
        handler=handler,
        scopes=(scope,),
        names=names,
        body=body,
        errors=reply_to,
        refuse=refuse,
    )


def _check_access(call: Call, *names: str) -> None:
    """A key that is limited to some names may not read or write others through a router."""
    for name in names:
        if not call.access.may_touch(name):
            raise may_not_touch(name, "topic")


def _definition(name: str, body: RouterBody) -> RouterDefinition:
    if NAME.fullmatch(name) is None:
        raise invalid(
            f"{name!r} is not a router name: expected 1 to 255 letters, digits and . _ : - >, first a letter or digit"
        )
    if body.source == body.dest:
        raise invalid("source and dest must be different topics", {"topic": body.source})
    match = parse_match(body.filter, "filter")
    return RouterDefinition(
        name=name,
        source=body.source,
        dest=body.dest,
        keep_keys=body.preserve_tag,
        keep_nodes=body.preserve_node,
        filter=None if match is None else RouterFilter(match.key, match.prefix),
        allow_cycle=body.allow_cycle,
        stamped=body.guarantee == "exactly_once",
    )


def _members(definition: RouterDefinition) -> dict[str, Any]:
    """The members of a router in every answer."""
    wanted = definition.filter
    return {
        "router": definition.name,
        "source": definition.source,
        "dest": definition.dest,
        "preserve_node": definition.keep_nodes,
        "preserve_tag": definition.keep_keys,
        "filter": None if wanted is None else Match(wanted.key, wanted.prefix).json(),
        "allow_cycle": definition.allow_cycle,
        "guarantee": _guarantee(definition),
    }


def _guarantee(definition: RouterDefinition) -> Guarantee:
    return "exactly_once" if definition.stamped else "at_least_once"


def _row(router: Router) -> RouterRow:
    return RouterRow(**_members(router.definition), forwarded_total=router.forwarded_total)


def _put_reply(call: Call, definition: RouterDefinition, created: bool) -> Reply:
    answer = RouterPut(**_members(definition), created=created, performance=performance(call))
    return json_reply(answer, 201 if created else 200)


def _refusal(error: RouterError, access: Access) -> Refusal:
    """The reason, without names that the key may not access."""
    if isinstance(error, RouterCycle):
        if not access.may_touch_all(*error.cycle):
            return Refusal(ROUTER_CYCLE, "the router would close a cycle")
        return Refusal(ROUTER_CYCLE, str(error), {"cycle": error.cycle})
    if isinstance(error, RouterFanIn):
        message = str(error)
        if not access.may_touch(error.source):
            message = f"{error.dest!r} is already the destination of another topic; a topic can have only one source"
        return Refusal(TOPIC_EXISTS_INCOMPATIBLE, message, {"topic": error.dest, "reason": "router_dest_fan_in"})
    assert isinstance(error, RouterRepointed)
    detail = {
        "router": error.name,
        "reason": "router_repoint_forbidden",
        "existing_source": error.source,
        "existing_dest": error.dest,
    }
    return Refusal(TOPIC_EXISTS_INCOMPATIBLE, str(error), detail)
