"""Routers: what is written to one topic goes on into another."""

from __future__ import annotations

from typing import Literal

from strandline.client import topic_calls as calls
from strandline.client.asynchronous.transport import AsyncTransport
from strandline.client.calls import delete, get, put
from strandline.client.topic_calls import Match
from strandline.client.topic_types import RouterState


class AsyncRouter:
    """One router."""

    def __init__(self, transport: AsyncTransport, name: str) -> None:
        self._transport = transport
        self.name = name
        self._path = calls.router_path(name)

    async def configure(
        self,
        source: str,
        dest: str,
        *,
        filter: Match | None = None,
        preserve_node: bool = True,
        preserve_tag: bool = True,
        create_dest: bool = True,
        allow_cycle: bool = False,
        guarantee: Literal["at_least_once", "exactly_once"] = "at_least_once",
    ) -> RouterState:
        """Make or change it: what is written to ``source`` from now on is copied to ``dest``."""
        body = {
            "source": source,
            "dest": dest,
            "filter": filter,
            "preserve_node": preserve_node,
            "preserve_tag": preserve_tag,
            "create_dest": create_dest,
            "allow_cycle": allow_cycle,
            "guarantee": guarantee,
        }
        return await self._transport.ask(put(self._path, body), calls.ROUTER)

    async def state(self) -> RouterState:
        return await self._transport.ask(get(self._path), calls.ROUTER)

    async def delete(self) -> bool:
        """Whether there was one. What it has copied stays."""
        return (await self._transport.ask(delete(self._path), calls.ROUTER_DELETED)).deleted
