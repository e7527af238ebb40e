"""Consumer groups: several members read a topic together."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from time import monotonic
from typing import Any, Generic, Literal, TypeVar

from strandline.client import group_calls as calls
from strandline.client import topic_calls
from strandline.client.asynchronous.topics import tell_loss
from strandline.client.asynchronous.transport import AsyncTransport
from strandline.client.calls import AnswerReader
from strandline.client.errors import Fenced, StrandlineError
from strandline.client.group_calls import GroupState, MemberSettings, MemberShares, NextRead
from strandline.client.queue_calls import HEARTBEATS_PER_LEASE, is_passing, new_node
from strandline.client.task_concurrency import AsyncCrew, AsyncFlag, AsyncLock
from strandline.client.topic_types import Page, Record, Tombstone

T = TypeVar("T")

log = logging.getLogger("strandline.client.group")


class AsyncConsumerGroup(Generic[T]):
    """A consumer group of a topic: its members divide the records among themselves, by tag."""

    def __init__(self, transport: AsyncTransport, topic: str, page: AnswerReader[Page[Any]], name: str) -> None:
        self._transport = transport
        self._topic = topic
        self._page = page
        self.name = name
        self._path = calls.group_path(topic, name)

    def join(
        self,
        *,
        node: str | None = None,
        lease_ms: int = 10_000,
        shares: int | None = None,
        at: Literal["start", "end"] = "start",
        auto_commit: bool = True,
        on_loss: Callable[[Tombstone], None] | None = None,
    ) -> AsyncGroupMember[T]:
        """A member of the group, which joins when it is opened (``with``). It is documented at its class.

        ``node`` is its name, different for each member. ``shares`` and ``at`` count for the first member, which creates
        the group: into how many shares the tags are divided (16 by default), and whether the group begins at the start
        or the end of the topic. ``on_loss`` is documented at ``Topic.read``."""
        settings = MemberSettings(lease_ms, shares, at, auto_commit)
        return AsyncGroupMember(
            self._transport, self._topic, self._path, self._page, node or new_node(), settings, on_loss
        )

    async def state(self) -> GroupState:
        """The members, and the position, the lag and the owner of each share. Raises NotFound if there is no group."""
        return await self._transport.ask(calls.state(self._path), calls.GROUP)

    async def delete(self) -> bool:
        """Delete the group with its positions. Returns whether it existed. Raises Conflict if it has members."""
        return (await self._transport.ask(calls.remove(self._path), calls.GROUP_DELETED)).deleted


class AsyncGroupMember(Generic[T]):
    """A member of a consumer group. It gets the records of some shares of the tags, each tag in order::

        with client.topic("orders").consumer_group("billing").join() as member:
            for record in member.records():
                ...

    The shares are divided evenly among the members, and again when a member joins or leaves. A member that ends without
    leaving loses its shares when its lease ends. Heartbeats extend the lease while the program runs.

    A record counts as processed when the next one is requested, and a batch when the next batch is. Their positions are
    committed after every page, with every heartbeat, and when the member leaves. Without ``auto_commit``, only
    :meth:`commit` commits. A share moves to another member when all records of it that were delivered are committed. So
    a record is delivered again only if its member did not finish it.

    A member that is out of touch for longer than its lease loses its shares, and the records that it had not committed
    are delivered to other members: ``commit`` raises Fenced, and without it the member logs a warning.
    """

    def __init__(
        self,
        transport: AsyncTransport,
        topic: str,
        path: str,
        page: AnswerReader[Page[Any]],
        node: str,
        settings: MemberSettings,
        on_loss: Callable[[Tombstone], None] | None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._transport = transport
        self._topic = topic
        self._path = path
        self._page = page
        self.node = node
        self._settings = settings
        self._on_loss = on_loss
        self._clock = clock
        self._shares: MemberShares[T] = MemberShares()
        #: Until when the shares are this member's.
        self._deadline = 0.0
        self._interval = settings.lease_ms / 1000 / HEARTBEATS_PER_LEASE
        self._reporting = AsyncLock()
        self._heart = AsyncCrew(1)
        self._finished = AsyncFlag()
        self._opened = False
        self._stopped = False

    async def __aenter__(self) -> AsyncGroupMember[T]:
        await self._report()
        self._opened = True
        self._heart.start(self._beat)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    @property
    def shares(self) -> list[int]:
        """The numbers of the shares that this member has."""
        return self._shares.numbers

    def stop(self) -> None:
        """End the iteration after the current record or batch. A signal handler may call it."""
        # Not a flag: a signal handler must not wait for a lock that the interrupted thread may have.
        self._stopped = True

    async def aclose(self) -> None:
        """Commit what was processed, and leave the group. The other members get the shares at once."""
        self._stopped = True
        self._finished.put_up()
        await self._heart.join()
        if self._opened:
            self._opened = False
            try:
                await self._report(leave=True)
            except StrandlineError as error:
                if not is_passing(error):
                    raise
                log.warning("member %s could not leave, and its shares move when its lease ends: %s", self.node, error)

    async def commit(self) -> None:
        """Commit all records that were delivered, including the current record or batch. Raises Fenced if other members
        get some of them again, because this one was out of touch for longer than its lease."""
        self._shares.finish()
        await self._report()
        lost = self._shares.take_lost()
        if lost:
            raise Fenced(
                409,
                "shares_lost",
                f"member {self.node!r} has lost the shares {lost}: their records after the committed position are "
                "delivered to other members",
                {"shares": lost},
            )

    async def records(self, *, size: int = 256, until_end: bool = False) -> AsyncIterator[Record[T]]:
        """The records of this member's shares, and new ones as they arrive. With ``until_end``, until all members have
        processed all records. ``size`` is how many are read at a time."""
        while True:
            found = await self._next(1, size, until_end)
            if not found:
                return
            yield found[0]

    async def batches(self, *, size: int = 256, until_end: bool = False) -> AsyncIterator[list[Record[T]]]:
        """Like ``records``, in batches of up to ``size``. A batch is committed when you request the next one."""
        while True:
            found = await self._next(size, size, until_end)
            if not found:
                return
            yield found

    # --- reading ---------------------------------------------------------------------------------------------------

    async def _next(self, limit: int, size: int, until_end: bool) -> list[Record[T]]:
        """The next records; empty at the end."""
        if not self._opened:
            raise RuntimeError("the member has not joined: open it in a with statement")
        shares = self._shares
        while True:
            if self._settings.auto_commit:
                shares.finish()
            if self._stopped:
                return []
            if self._clock() >= self._deadline:
                await self._report_patiently()
            found = shares.take(limit)
            if found:
                return found
            if shares.unreported:
                await self._report_patiently()
            wanted = shares.next_read()
            if wanted is None:
                if until_end and await self._is_done():
                    return []
                await self._pause()
                await self._report_patiently()
                continue
            page = await self._read(wanted, size, until_end)
            if page is None:
                continue
            if page.tombstone is not None:
                tell_loss(page.tombstone, self._on_loss)
            shares.fill(page)
            if until_end and not page.records and shares.at_end:
                if self._settings.auto_commit:
                    shares.finish()
                    await self._report_patiently()
                if await self._is_done():
                    return []
                await self._pause()

    async def _read(self, wanted: NextRead, size: int, until_end: bool) -> Page[T] | None:
        """The page; None if the server could not be reached for now."""
        wait_ms = min(calls.LONGEST_WAIT_MS, round(self._interval * 1000)) if wanted.wait and not until_end else 0
        request = topic_calls.diff(
            self._topic,
            from_seq=wanted.after,
            shares={"of": wanted.of, "only": wanted.only},
            limit=size,
            wait_ms=wait_ms,
            include_tags=True,
        )
        try:
            return await self._transport.ask(request, self._page)
        except StrandlineError as error:
            await self._wait_or_raise(error)
            return None

    # --- reporting -------------------------------------------------------------------------------------------------

    async def _report(self, *, leave: bool = False, once: bool = False) -> None:
        """Renew the lease, commit what is processed, give back shares, and learn about new ones."""
        async with self._reporting:
            began = self._clock()
            report = self._shares.report()
            request = calls.attend(self._path, self.node, self._settings, report, leave)
            answer = calls.ATTENDED(await (self._transport.once(request) if once else self._transport.call(request)))
            self._deadline = began + answer.lease_ms / 1000
            self._shares.accept(answer, report)

    async def _report_patiently(self) -> None:
        """Report, and wait for temporary errors to pass."""
        try:
            await self._report()
        except StrandlineError as error:
            await self._wait_or_raise(error)
        if self._settings.auto_commit:
            lost = self._shares.take_lost()
            if lost:
                log.warning("member %s has lost the shares %s: some records may be processed twice", self.node, lost)

    async def _wait_or_raise(self, error: StrandlineError) -> None:
        if not is_passing(error):
            raise error
        log.warning("member %s retries: %s", self.node, error)
        await self._pause()

    async def _pause(self) -> None:
        await self._finished.wait(min(self._interval, calls.LONGEST_WAIT_MS / 1000))

    async def _is_done(self) -> bool:
        """Whether the other members have processed everything too."""
        state = await self._transport.ask(calls.state(self._path), calls.GROUP)
        return all(share.node == self.node or share.seq >= state.head_seq for share in state.shares)

    async def _beat(self) -> None:
        """Report periodically."""
        while not await self._finished.wait(self._interval):
            try:
                await self._report(once=True)
            except StrandlineError as error:
                log.warning("member %s could not extend its lease: %s", self.node, error)
