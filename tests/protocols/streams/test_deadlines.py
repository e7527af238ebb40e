from __future__ import annotations

import asyncio

from strandline.protocols.streams.context import AppendDeadlines
from strandline.protocols.streams.errors import append_timeout
from strandline.service.http import Later
from strandline.service.meters import Meter


def test_whoever_fails_when_told_that_the_time_is_up_keeps_nobody_else_from_it() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda *_: None)
        deadlines = AppendDeadlines(loop, 0.0, append_timeout(), Meter())
        told = loop.create_future()
        first, second = Later(), Later()
        deadlines.begin((first,), 1)
        deadlines.begin((second,), 1)
        first.then(lambda _: 1 / 0)  # type: ignore[arg-type,return-value]
        second.then(lambda _: told.set_result(None))
        await asyncio.wait_for(told, 30)

    asyncio.run(main())
