"""Subscriptions over HTTP: their routes, access to them, and streams as the logs of subscriptions."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any
from urllib.parse import quote

import msgspec
from msgspec import UNSET, UnsetType

from strandline.delivery.subscriptions import (
    Claim,
    Dialect,
    Link,
    Subscription,
    Subscriptions,
    WakeHolder,
)
from strandline.delivery.subscriptions.webhooks import HttpCourier
from strandline.engine import Commit, Log
from strandline.engine.errors import EngineError, NotWritable
from strandline.protocols.streams.context import StreamsContext
from strandline.protocols.streams.errors import (
    not_found,
    refuse,
    subscription_invalid,
    subscription_reply_to,
    token_invalid,
)
from strandline.protocols.streams.grammar import iso
from strandline.protocols.streams.replies import CORS, json_reply, origin
from strandline.protocols.streams.stream import StreamTraits
from strandline.protocols.streams.subscriptions.definition import (
    ack_of,
    checked_id,
    checked_name,
    decode_claim,
    decode_holder,
    decode_streams,
    decode_subscription,
    define,
    relative,
)
from strandline.protocols.streams.subscriptions.wire import (
    HolderBody,
    JsonWebKeys,
    SubscribedStream,
    SubscriptionAnswer,
    WakeAcknowledged,
    WakeClaimed,
    WakeEvent,
    WebhookNotification,
    WebhookShown,
    WebhookSigning,
    WokenStream,
)
from strandline.service.access import FULL_ACCESS
from strandline.service.admission import Replying
from strandline.service.catalog import SYSTEM, Catalog, check_change
from strandline.service.http import NO_STORE, Call, Handler, Later, Reply, Route, preflight
from strandline.service.problems import Refusal
from strandline.service.subscription_access import check_definition, check_names, check_subscription

log = logging.getLogger(__name__)

ROOT = "/v1/stream/__ds"
#: How many links are rendered before other work gets its turn.
LINKS_PER_TURN = 1000


class StreamsDialect(Dialect):
    def __init__(self, context: StreamsContext) -> None:
        self._context = context

    def visible(self, log: Log) -> bool:
        return log.name in SYSTEM or Catalog.visible(log, FULL_ACCESS)

    def wake_log(self, name: str) -> Log | None:
        try:
            return self.check_wake_stream(name)
        except (Refusal, EngineError) as error:
            log.warning("cannot write wakes to %r: %s", name, error)
            return None

    def check_wake_stream(self, name: str) -> Log:
        """The log of the stream for wakes, created if necessary; refuses a stream that does not accept wakes."""
        context = self._context
        if name in SYSTEM:
            raise subscription_invalid(f"wake_stream {name!r} is an internal stream of the server")
        stream = context.streams.find(name)
        try:
            if stream is None:
                stream, _ = context.streams.create(name, StreamTraits())
            check_change(stream.log)
        except NotWritable as error:
            raise subscription_invalid(f"wake_stream {name!r} cannot be appended to: {error.why}") from None
        if stream.gone or stream.closed:
            raise subscription_invalid(f"wake_stream {name!r} is closed or deleted")
        if not stream.is_json or not stream.is_plain:
            raise subscription_invalid(
                f"wake_stream {name!r} must be a stream of application/json without a schema or a profile"
            )
        stream.use(context.hub.now())
        return stream.log

    def wake_event(self, subscription: Subscription, name: str, generation: int) -> bytes:
        now = self._context.hub.now()
        return msgspec.json.encode(
            WakeEvent(subscription_id=subscription.id, stream=name, generation=generation, ts=now)
        )

    def notification(self, subscription: Subscription, links: Sequence[Link], token: str) -> bytes:
        id = quote(subscription.id, safe="")
        return msgspec.json.encode(
            WebhookNotification(
                subscription_id=subscription.id,
                wake_id=subscription.wake_id,
                generation=subscription.generation,
                streams=[WokenStream.of(link) for link in links],
                callback_url=f"{subscription.base_url}{ROOT}/subscriptions/{id}/callback",
                callback_token=token,
            )
        )


# --- routes --------------------------------------------------------------------------------------------------------

SUBSCRIPTION = ROOT + "/subscriptions/{id}"
_JWKS = b"application/jwk-set+json"
#: Verifiers may cache the key for a while.
_CACHEABLE = (b"cache-control", b"public, max-age=300")


class SubscriptionRoutes:
    def __init__(self, context: StreamsContext) -> None:
        self._context = context
        self._dialect = StreamsDialect(context)
        courier = HttpCourier(
            private=context.settings.webhook_allow_private,
            loopback=context.settings.webhook_allow_loopback,
            threads=context.workers.lookups,
        )
        self.subscriptions = Subscriptions(context.engine, context.hub, self._dialect, courier)
        context.kernel.catalog.created[lambda log: self.subscriptions.look_for_new()] = None
        #: Subscriptions are created one after the other, so that a request that finds one finds it complete.
        self._making = asyncio.Lock()

    def stop(self) -> None:
        self.subscriptions.stop()

    # --- subscriptions as resources ------------------------------------------------------------------------------

    async def put(self, call: Call) -> Reply:
        """PUT /v1/stream/__ds/subscriptions/{id}"""
        id = checked_id(call.param("id"))
        definition = define(decode_subscription(call.body))
        check_definition(call.access, definition)
        async with self._making:
            known = self.subscriptions.find(id)
            if known is not None:
                check_subscription(call.access, known)
            if known is None and definition.wake_stream is not None:
                self._dialect.check_wake_stream(definition.wake_stream)
            subscription, new, commit = self.subscriptions.put(id, definition, origin(call.head))
            if new:
                await self._link(subscription)
                commit = self.subscriptions.durable
            await self._done(commit)
        return await self._shown(call, subscription, 201 if new else 200)

    async def _link(self, subscription: Subscription) -> None:
        try:
            for _ in self.subscriptions.link_existing(subscription):
                await asyncio.sleep(0)
        except BaseException:
            self.subscriptions.remove(subscription.id)
            raise

    async def get(self, call: Call) -> Reply:
        """GET /v1/stream/__ds/subscriptions/{id}"""
        self.subscriptions.catch_up()
        return await self._shown(call, self._subscription(call), 200)

    def delete(self, call: Call) -> Replying:
        """DELETE /v1/stream/__ds/subscriptions/{id}. Deleting one that does not exist succeeds."""
        subscription = self.subscriptions.find(call.param("id"))
        if subscription is not None:
            check_subscription(call.access, subscription)
        return self._context.admission.after(self.subscriptions.remove(call.param("id")), _nothing)

    def add_streams(self, call: Call) -> Replying:
        """POST /v1/stream/__ds/subscriptions/{id}/streams"""
        names = [checked_name(name) for name in decode_streams(call.body).streams]
        check_names(call.access, names)
        commit = self.subscriptions.name(self._subscription(call), names)
        return self._context.admission.after(commit, _nothing)

    def remove_stream(self, call: Call) -> Replying:
        """DELETE /v1/stream/__ds/subscriptions/{id}/streams/{stream}"""
        commit = self.subscriptions.unname(self._subscription(call), relative(call.param("stream")))
        return self._context.admission.after(commit, _nothing)

    def keys(self, call: Call) -> Replying:
        """GET /v1/stream/__ds/jwks.json"""
        body = msgspec.json.encode(JsonWebKeys([self.subscriptions.signer.public_key]))
        return self._context.admission.after(
            self.subscriptions.opened, lambda _: Reply(body, 200, _JWKS, (_CACHEABLE,))
        )

    # --- wakes ---------------------------------------------------------------------------------------------------

    def claim(self, call: Call) -> Replying:
        """POST /v1/stream/__ds/subscriptions/{id}/claim"""
        worker = decode_claim(call.body).worker
        subscription = self._subscription(call)
        claim, commit = self.subscriptions.claim(subscription, worker)
        return self._context.admission.after(commit, partial(_claimed, claim, subscription.definition.lease_ttl_ms))

    def callback(self, call: Call) -> Replying:
        """POST /v1/stream/__ds/subscriptions/{id}/callback"""
        return self._acknowledge(call, self.subscriptions.callback)

    def ack(self, call: Call) -> Replying:
        """POST /v1/stream/__ds/subscriptions/{id}/ack"""
        return self._acknowledge(call, self.subscriptions.acknowledge)

    def _acknowledge(self, call: Call, tell: Callable[..., tuple[bool, Commit[Any]]]) -> Replying:
        holder, body = _holder(call)
        acks = [ack_of(ack) for ack in body.acks or ()]
        next_wake, commit = tell(call.param("id"), holder, acks, body.done is True)
        return self._context.admission.after(commit, lambda _: json_reply(WakeAcknowledged(next_wake=next_wake)))

    def release(self, call: Call) -> Replying:
        """POST /v1/stream/__ds/subscriptions/{id}/release"""
        holder, _ = _holder(call)
        return self._context.admission.after(self.subscriptions.release(call.param("id"), holder), _nothing)

    # --- shared parts ----------------------------------------------------------------------------------------------

    def _subscription(self, call: Call) -> Subscription:
        subscription = self.subscriptions.get(call.param("id"))
        check_subscription(call.access, subscription)
        return subscription

    async def _shown(self, call: Call, subscription: Subscription, status: int) -> Reply:
        """The whole state of the subscription."""
        streams = []
        for count, link in enumerate(list(subscription.links), 1):
            streams.append(SubscribedStream.of(link))
            if count % LINKS_PER_TURN == 0:
                await asyncio.sleep(0)
        definition = subscription.definition
        answer = SubscriptionAnswer(
            id=subscription.id,
            subscription_id=subscription.id,
            type=definition.type,
            pattern=_or_unset(definition.pattern),
            streams=streams,
            webhook=UNSET,
            wake_stream=_or_unset(definition.wake_stream),
            lease_ttl_ms=definition.lease_ttl_ms,
            created_at=iso(subscription.made_at),
            status=subscription.status,
            description=_or_unset(definition.description),
        )
        if definition.webhook_url is not None:
            keys = f"{origin(call.head)}{ROOT}/jwks.json"
            signing = WebhookSigning(kid=self.subscriptions.signer.kid, jwks_url=keys)
            answer.webhook = WebhookShown(definition.webhook_url, signing)
        return json_reply(answer, status)

    async def _done(self, commit: Commit[Any]) -> None:
        if not commit.done:
            await self._context.hub.when_done(commit, lambda _: None)

    # --- paths -----------------------------------------------------------------------------------------------------

    def routes(self) -> list[Route]:
        one, stream = SUBSCRIPTION, SUBSCRIPTION + "/streams/{stream}"
        routes = [
            _route("GET", ROOT + "/jwks.json", self.keys, public=True),
            _route("PUT", one, self.put, "admin"),
            _route("GET", one, self.get, "read"),
            _route("DELETE", one, self.delete, "admin"),
            _route("POST", one + "/streams", self.add_streams, "admin"),
            _route("DELETE", stream, self.remove_stream, "admin", spans="stream"),
            _route("POST", one + "/claim", self.claim, "read", "write"),
            # The holder of a wake sends its token in the header where an API key would be.
            _route("POST", one + "/callback", self.callback, own_access=True),
            _route("POST", one + "/ack", self.ack, own_access=True),
            _route("POST", one + "/release", self.release, own_access=True),
        ]
        paths = {route.path: route.spans for route in routes}
        routes += [_route("OPTIONS", path, preflight, public=True, spans=spans) for path, spans in paths.items()]
        nothing = [_route(method, ROOT + "/{rest}", _no_such, spans="rest") for method in _METHODS]
        return routes + nothing


_METHODS = ("GET", "HEAD", "PUT", "POST", "DELETE")


def _route(method: str, path: str, handler: Handler, *scopes: str, **how: Any) -> Route:
    body = "any" if method in ("PUT", "POST") else "none"
    return Route(
        method=method,
        path=path,
        handler=handler,
        scopes=scopes,
        body=body,
        any_case=True,
        cors=CORS,
        errors=subscription_reply_to,
        refuse=refuse,
        **how,
    )


def _holder(call: Call) -> tuple[WakeHolder, HolderBody]:
    authorization = call.head.headers.get(b"authorization", b"").decode("latin-1")
    scheme, _, token = authorization.partition(" ")
    if scheme.lower() != "bearer" or not token:
        raise token_invalid("the token of the wake is missing; send it as Authorization: Bearer …")
    body = decode_holder(call.body)
    return WakeHolder(token.strip(), body.wake_id, body.generation), body


def _claimed(claim: Claim, lease_ttl_ms: int, _: object) -> Reply:
    return json_reply(
        WakeClaimed(
            wake_id=claim.wake_id,
            generation=claim.generation,
            token=claim.token,
            streams=[WokenStream.of(link) for link in claim.links],
            lease_ttl_ms=lease_ttl_ms,
        )
    )


def _or_unset(value: str | None) -> str | UnsetType:
    return UNSET if value is None else value


def _nothing(_: object) -> Reply:
    return Reply(b"", 204, headers=(NO_STORE,))


def _no_such(call: Call) -> Later:
    raise not_found(f"nothing exists at {call.head.path}")
