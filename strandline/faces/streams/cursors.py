"""Cursors: a number that changes every so often, for caches in between to tell one wait from the next.

Clients send back the last one they got. Whoever comes with the present one gets a later one, so that no cache ever
answers a wait with the answer to the wait before.
"""

from __future__ import annotations

import random
import re

#: 2024-10-09, in milliseconds: where the protocol counts from.
_FIRST_MS = 1_728_432_000_000
_INTERVAL_MS = 20_000
#: Those who are ahead of time are moved on by up to so many intervals, which is an hour.
_JITTER = 180
_CURSOR = re.compile("[0-9]{1,15}", re.ASCII)


def cursor(now: int, theirs: str) -> int:
    present = max(0, now - _FIRST_MS) // _INTERVAL_MS
    if _CURSOR.fullmatch(theirs) is not None and int(theirs) >= present:
        return int(theirs) + random.randint(1, _JITTER)
    return present
