"""All subscriptions: create and remove them, start wakes, lease them to workers, and record acknowledgements."""

from __future__ import annotations

import logging
import random
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any

from strandline.delivery.hub import Hub
from strandline.delivery.subscriptions.errors import (
    AlreadyClaimed,
    Fenced,
    NothingPending,
    SubscriptionExists,
    TooManySubscriptions,
    UnknownSubscription,
    WrongKind,
)
from strandline.delivery.subscriptions.events import (
    AckedEvent,
    Acknowledged,
    Event,
    LeasedEvent,
    LinkedEvent,
    MadeEvent,
    MovedEvent,
    RemovedEvent,
    SubscriptionDefinition,
    WokenEvent,
)
from strandline.delivery.subscriptions.link_index import Linking
from strandline.delivery.subscriptions.store import SubscriptionStore
from strandline.delivery.subscriptions.subscription import (
    PLACES_PER_EVENT,
    Ack,
    Claim,
    Dialect,
    Subscription,
    WakeHolder,
    checked,
    still_there,
)
from strandline.delivery.subscriptions.timer import FIRST_MS, Timer, retry_delay_ms
from strandline.delivery.subscriptions.webhook_signatures import Tokens, WebhookSigner
from strandline.delivery.subscriptions.webhooks import Courier, WebhookAnswer
from strandline.engine import Append, Batch, Commit, Engine, Log
from strandline.engine.background import delay_after, report
from strandline.engine.errors import LogFull, shown

log = logging.getLogger(__name__)

MAX_SUBSCRIPTIONS = 10_000
#: The maximum number of logs per wake, those with new records first. Another wake follows for the rest.
MAX_TOLD = 1000
#: How often to look for logs that another protocol has created. Logs of the same protocol are reported at once.
LOOK_SECONDS = 1.0


class Subscriptions:
    """All subscriptions of a server. Used on the event loop only. Changes return a commit and must not be acknowledged
    to the client before it is done.

    ``jitter`` returns numbers from 0 to 1.
    """

    def __init__(
        self,
        engine: Engine,
        hub: Hub,
        dialect: Dialect,
        courier: Courier,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._engine = engine
        self._hub = hub
        self._dialect = dialect
        self._courier = courier
        self._jitter = jitter
        self._keeping = SubscriptionStore(engine)
        self._timer = Timer(hub, self._due)
        self._all = self._keeping.load()
        self._stopped = False
        self._linking = Linking(engine, hub, dialect.visible, self._write, self._wake_soon)
        self._linking.load(self._all)
        for subscription in list(self._all.values()):
            # No lease is longer than this. A later deadline comes from a wrong clock.
            latest = hub.now() + subscription.definition.lease_ttl_ms
            subscription.until = min(subscription.until, latest)
            self._resume(subscription)
        self._looking = hub.every(LOOK_SECONDS, "search for new streams", self.look_for_new)

    def stop(self) -> None:
        """Stop sending. Deliveries that are under way are resumed after a restart."""
        self._stopped = True
        self._looking.stop()
        self._timer.stop()
        self._courier.stop()

    @cached_property
    def signer(self) -> WebhookSigner:
        return WebhookSigner(self._keeping.seed)

    @cached_property
    def _tokens(self) -> Tokens:
        return Tokens(self._keeping.seed)

    @property
    def opened(self) -> Commit[Any]:
        """Done when the signing key is durable."""
        return self._keeping.opened

    @property
    def durable(self) -> Commit[Any]:
        """Done when all changes so far are durable."""
        return self._keeping.last

    # --- subscriptions -------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Subscription]:
        return iter(self._all.values())

    def find(self, id: str) -> Subscription | None:
        return self._all.get(id)

    def get(self, id: str) -> Subscription:
        found = self._all.get(id)
        if found is None:
            raise UnknownSubscription(id)
        return found

    def put(self, id: str, definition: SubscriptionDefinition, base_url: str) -> tuple[Subscription, bool, Commit[Any]]:
        """Create a subscription. Returns it and whether it is new. A new subscription is linked to the logs that it
        names; the caller must then use :meth:`link_existing` to link the logs that match its pattern."""
        known = self._all.get(id)
        if known is not None:
            if known.definition != definition:
                raise SubscriptionExists(id)
            return known, False, self._move(known, base_url)
        if len(self._all) >= MAX_SUBSCRIPTIONS:
            raise TooManySubscriptions(f"there are already {MAX_SUBSCRIPTIONS} subscriptions, the maximum")
        if definition.webhook_url is not None:
            self._courier.check(definition.webhook_url)
        self.catch_up()
        made = MadeEvent(id, definition, self._hub.now(), self._engine.next_epoch, base_url)
        subscription = Subscription(made)
        linked = _linked(id, self._linking.places(None, definition.streams))
        commit = self._write([made, *linked])
        for event in linked:
            subscription.apply(event)
        self._all[id] = subscription
        self._linking.add(subscription)
        self._linking.name(subscription, definition.streams)
        return subscription, True, commit

    def link_existing(self, subscription: Subscription) -> Iterator[None]:
        """Link the existing logs that match the pattern, at their current end. Yields between steps."""
        return self._linking.existing(subscription)

    def _move(self, subscription: Subscription, base_url: str) -> Commit[Any]:
        if subscription.base_url == base_url:
            return Commit.of(None)
        event = MovedEvent(subscription.id, base_url)
        commit = self._write([event])
        subscription.apply(event)
        return commit

    def remove(self, id: str) -> Commit[Any]:
        """Remove the subscription if it exists."""
        if self._engine.follower is not None:
            # The leader may have it, even if this server does not know it.
            raise self._engine.follower.refusal
        subscription = self._all.get(id)
        if subscription is None:
            return Commit.of(None)
        commit = self._write([RemovedEvent(id)])
        subscription.removed = True
        del self._all[id]
        self._linking.remove(subscription)
        return commit

    def name(self, subscription: Subscription, names: Iterable[str]) -> Commit[Any]:
        """Subscribe to these logs by name. The logs need not exist."""
        self.catch_up()
        names = list(dict.fromkeys(names))
        events = _linked(subscription.id, self._linking.places(subscription, names))
        commit = self._write(events)
        for event in events:
            subscription.apply(event)
        self._linking.name(subscription, names)
        return commit

    def unname(self, subscription: Subscription, name: str) -> Commit[Any]:
        return self._linking.unname(subscription, name) or Commit.of(None)

    def catch_up(self) -> None:
        """Process all changes of logs so far, instead of waiting for the next wake-up."""
        self._linking.watch.catch_up()

    def look_for_new(self) -> None:
        """Link logs that were created since. Call it after creating a log; otherwise a periodic task finds the log
        later."""
        self._linking.watch.look_for_new()

    # --- the holder of a wake ------------------------------------------------------------------------------------

    def claim(self, subscription: Subscription, worker: str) -> tuple[Claim, Commit[Any]]:
        """Lease the wake to a worker. Begins a wake if there is none and records are pending."""
        _check_pulls(subscription)
        self.catch_up()
        now = self._hub.now()
        self._lapse(subscription, now)
        if subscription.until:
            raise AlreadyClaimed(subscription.holder, subscription.generation)
        if not subscription.links.pending:
            self._end_unclaimed(subscription)
            raise NothingPending("all records are acknowledged")
        if not subscription.wake_id:
            self._wake(subscription, next(iter(subscription.links.pending)).name)
        event = LeasedEvent(subscription.id, now + subscription.definition.lease_ttl_ms, worker)
        commit = self._write([event])
        subscription.apply(event)
        subscription.delivered_at = now
        self._timer.set(subscription)
        token = self._token(subscription)
        links = subscription.links.selection(MAX_TOLD)
        return Claim(subscription.wake_id, subscription.generation, token, links), commit

    def callback(self, id: str, holder: WakeHolder, acks: Sequence[Ack], done: bool) -> tuple[bool, Commit[Any]]:
        """A webhook acknowledges records, and extends or ends the wake. Returns whether another wake follows at
        once."""
        subscription = self._held(id, holder)
        if not subscription.is_webhook:
            raise WrongKind("the subscription has no webhook: acknowledge as a worker")
        return self._acknowledge(subscription, acks, done)

    def acknowledge(self, id: str, holder: WakeHolder, acks: Sequence[Ack], done: bool) -> tuple[bool, Commit[Any]]:
        """Like :meth:`callback`, for a worker that has claimed the wake."""
        subscription = self._held(id, holder)
        _check_pulls(subscription)
        return self._acknowledge(subscription, acks, done)

    def release(self, id: str, holder: WakeHolder) -> Commit[Any]:
        """Return the wake without acknowledging. If records are pending, another wake begins."""
        subscription = self._held(id, holder)
        _check_pulls(subscription)
        return self._acknowledge(subscription, (), True)[1]

    def _held(self, id: str, holder: WakeHolder) -> Subscription:
        """The subscription, if the token was issued for its current wake."""
        now = self._hub.now()
        given = self._tokens.check(holder.token, id, now)
        subscription = self.get(id)
        self._lapse(subscription, now)
        wanted = (subscription.generation, subscription.wake_id)
        if not subscription.wake_id or given != wanted or (holder.generation, holder.wake_id) != wanted:
            raise Fenced("the wake has ended and another worker may hold the subscription")
        return subscription

    def _acknowledge(self, subscription: Subscription, acks: Sequence[Ack], done: bool) -> tuple[bool, Commit[Any]]:
        self.catch_up()
        places = checked(subscription, acks)
        until = 0 if done else self._hub.now() + subscription.definition.lease_ttl_ms
        subscription.failures = 0
        commit = self._acked(subscription, places, until)
        return done and bool(subscription.wake_id), commit

    def _acked(self, subscription: Subscription, places: list[Acknowledged], until: int) -> Commit[Any]:
        """Store an acknowledgement, and begin the next wake if records are pending."""
        event = AckedEvent(subscription.id, places, until)
        commit = self._write([event])
        subscription.apply(event)
        self._timer.set(subscription)
        if not until:
            self._next(subscription)
        return commit

    # --- wakes ---------------------------------------------------------------------------------------------------

    def _wake_soon(self, subscription: Subscription, name: str) -> None:
        """Begin a wake unless there is one. If it cannot be stored now, it is retried."""
        if subscription.wake_id or subscription.retry_at or subscription.removed or self._stopped:
            return
        self._try(subscription, lambda: self._wake(subscription, name))

    def _wake(self, subscription: Subscription, name: str) -> None:
        wake_log = self._wake_log(subscription)
        # Creating the log may already have begun the wake, because subscriptions are notified of new logs.
        if subscription.wake_id:
            return
        event = WokenEvent(subscription.id, subscription.generation + 1, "w_" + secrets.token_hex(12))
        if wake_log is None:
            commit = self._write([event])
        else:
            payload = self._dialect.wake_event(subscription, name, event.generation)
            commit = self._write_with([event], Append(wake_log, Batch([payload])))
        subscription.apply(event)
        if subscription.is_webhook:
            self._hub.on_done(commit, lambda: self._send(subscription, event.wake_id))

    def _wake_log(self, subscription: Subscription) -> Log | None:
        name = subscription.definition.wake_stream
        if name is None:
            return None
        found = self._dialect.wake_log(name)
        if found is None:
            log.warning("subscription %r: the wake log %r is not writable", subscription.id, name)
            subscription.note_failure(self._hub.now(), f"the wake log {name!r} is not writable")
        return found

    def _write_with(self, events: Sequence[Event], other: Append) -> Commit[Any]:
        """Store the events and the wake record in one transaction, so that a wake is announced exactly once. If the
        wake log is full, only the events are stored."""
        try:
            return self._write(events, [other])
        except LogFull as error:
            log.warning("a wake record cannot be written: %s", error)
            return self._write(events)

    def _lapse(self, subscription: Subscription, now: int) -> None:
        """End the wake if its lease has expired. No event is needed, because the deadline is stored."""
        if subscription.until and subscription.until <= now:
            subscription.end_wake()
            self._next(subscription)

    def _next(self, subscription: Subscription) -> None:
        pending = next(iter(subscription.links.pending), None)
        if pending is not None:
            self._wake_soon(subscription, pending.name)

    def _end_unclaimed(self, subscription: Subscription) -> None:
        """End a wake whose records no longer exist, so that the next pending record begins another one."""
        if subscription.wake_id:
            event = WokenEvent(subscription.id, subscription.generation, "")
            self._write([event])
            subscription.apply(event)

    def _resume(self, subscription: Subscription) -> None:
        """Resume the subscription after a restart."""
        if subscription.wake_id and not subscription.until and subscription.is_webhook:
            wake_id = subscription.wake_id
            self._hub.post(lambda: self._send(subscription, wake_id))
        elif not subscription.wake_id:
            self._next(subscription)
        self._timer.set(subscription)

    # --- webhooks ------------------------------------------------------------------------------------------------

    def _send(self, subscription: Subscription, wake_id: str) -> None:
        """Send the webhook, unless the wake has ended or is leased."""
        url = subscription.definition.webhook_url
        if self._stopped or not self._engine.writable or not self._is_open(subscription, wake_id) or url is None:
            return
        if not subscription.links.pending:
            self._try(subscription, lambda: self._end_unclaimed(subscription))
            return
        links = subscription.links.selection(MAX_TOLD)
        told = [Acknowledged(link.name, link.epoch, link.tail) for link in links]
        body = self._dialect.notification(subscription, links, self._token(subscription))
        headers = {
            "content-type": "application/json",
            "webhook-signature": self.signer.sign(body, self._hub.wall()),
        }

        def answered(answer: WebhookAnswer) -> None:
            self._try(subscription, lambda: self._answered(subscription, wake_id, told, answer))

        self._courier.deliver(url, body, headers, answered)

    def _answered(
        self, subscription: Subscription, wake_id: str, told: list[Acknowledged], answer: WebhookAnswer
    ) -> None:
        if self._stopped or subscription.removed or subscription.wake_id != wake_id:
            return
        if answer.delivered:
            subscription.failures = 0
            subscription.delivered_at = self._hub.now()
            self._try(subscription, lambda: self._taken(subscription, told, answer.done))
        elif not subscription.until:
            subscription.failures += 1
            subscription.note_failure(self._hub.now(), answer.why)
            self._try_again(subscription, retry_delay_ms(subscription.failures, self._jitter))

    def _taken(self, subscription: Subscription, told: list[Acknowledged], done: bool) -> None:
        if done:
            self._acked(subscription, still_there(subscription, told), 0)
        elif not subscription.until:
            event = LeasedEvent(subscription.id, self._hub.now() + subscription.definition.lease_ttl_ms, "")
            self._write([event])
            subscription.apply(event)
            self._timer.set(subscription)

    def _is_open(self, subscription: Subscription, wake_id: str) -> bool:
        """Whether the wake still has to be delivered."""
        return not subscription.removed and subscription.wake_id == wake_id and not subscription.until

    def _try(self, subscription: Subscription, act: Callable[[], None]) -> None:
        """Run ``act``. After an error, the subscription is retried, with a delay that grows with consecutive
        failures."""
        before = subscription.stumbles
        try:
            act()
        except Exception as error:
            subscription.stumbles += 1
            delay_ms = max(FIRST_MS, int(1000 * delay_after(subscription.stumbles)))
            report(f"subscription {subscription.id!r} failed; next attempt in {delay_ms} ms", error)
            subscription.note_failure(self._hub.now(), shown(error))
            self._try_again(subscription, delay_ms)
        else:
            # ``act`` may have handled a failure of its own, which counts.
            if subscription.stumbles == before:
                subscription.stumbles = 0

    def _try_again(self, subscription: Subscription, delay_ms: int) -> None:
        subscription.retry_at = self._hub.now() + delay_ms
        self._timer.set(subscription)

    # --- timers --------------------------------------------------------------------------------------------------

    def ring(self) -> None:
        """Process expired leases and webhooks that are due for a retry. A timer calls this."""
        self._timer.ring()

    def _due(self, subscription: Subscription) -> None:
        self._try(subscription, lambda: self._go_on(subscription))

    def _go_on(self, subscription: Subscription) -> None:
        now = self._hub.now()
        self._lapse(subscription, now)
        if subscription.retry_at and subscription.retry_at <= now:
            subscription.retry_at = 0
            if subscription.is_webhook and subscription.wake_id:
                self._send(subscription, subscription.wake_id)
        if not subscription.wake_id:
            self._next(subscription)

    # --- storage -------------------------------------------------------------------------------------------------

    def _token(self, subscription: Subscription) -> str:
        return self._tokens.issue(subscription.id, subscription.generation, subscription.wake_id, self._hub.now())

    def _write(self, events: Sequence[Event], others: Sequence[Append] = ()) -> Commit[Any]:
        # Compact before writing: the state includes the new events only after they are written.
        self._keeping.compact(self._all)
        return self._keeping.write(events, others)


def _linked(id: str, places: Sequence[Acknowledged]) -> list[Event]:
    return [
        LinkedEvent(id, list(places[start : start + PLACES_PER_EVENT]), True)
        for start in range(0, len(places), PLACES_PER_EVENT)
    ]


def _check_pulls(subscription: Subscription) -> None:
    if subscription.is_webhook:
        raise WrongKind("the subscription is not of the type pull-wake")
