"""Numbers as they are shown, one by one."""

from __future__ import annotations

from typing import Any

#: Below this JavaScript writes whole numbers in full.
PLAIN_BELOW = 10**21


def plain(number: Any) -> Any:
    """Whole numbers without a fraction, as JavaScript writes them."""
    if isinstance(number, float) and number.is_integer() and abs(number) < PLAIN_BELOW:
        return int(number)
    return number


def power_name(exponent: int) -> str:
    """The name of the bucket of a log2_v1 histogram that begins at this power of two."""
    power = 1 << exponent
    return str(power) if power < PLAIN_BELOW else repr(float(power))
