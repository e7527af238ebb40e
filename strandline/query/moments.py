"""Many RFC 3339 times at once, in the form that nearly all programs write: UTC, with or without milliseconds."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from strandline.query.columns import Mask
from strandline.query.words import text_buffers

#: Where in "2026-03-25T10:18:23.123Z", in quotes, which sign stands; everything else is a digit.
_SHORT = {0: '"', 5: "-", 8: "-", 11: "T", 14: ":", 17: ":", 20: "Z", 21: '"'}
_LONG = {0: '"', 5: "-", 8: "-", 11: "T", 14: ":", 17: ":", 20: ".", 24: "Z", 25: '"'}
_DAYS_IN_MONTH = np.array([0, 31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])

Int64s = npt.NDArray[np.int64]


def parse_moments(texts: Any) -> tuple[Int64s, Mask]:
    """Of an Arrow array of JSON texts: the milliseconds since 1970, and which of them are such times. The others are
    not necessarily none."""
    milliseconds = np.zeros(len(texts), np.int64)
    known = np.zeros(len(texts), np.bool_)
    lengths = np.diff(text_buffers(texts)[0])
    for length, form in ((22, _SHORT), (26, _LONG)):
        chosen = lengths == length
        if chosen.any():
            _, raw = text_buffers(texts if chosen.all() else texts.filter(pa.array(chosen)))
            milliseconds[chosen], known[chosen] = _parse(np.ascontiguousarray(raw.reshape(-1, length).T), form)
    return milliseconds, known


def _parse(signs: npt.NDArray[np.uint8], form: dict[int, str]) -> tuple[Int64s, Mask]:
    """Of the signs at the first place of each, at the second, and so on."""
    right = np.ones(signs.shape[1], np.bool_)
    digits = signs - np.uint8(48)
    for place in range(len(signs)):
        right &= signs[place] == ord(form[place]) if place in form else digits[place] < 10

    def number(first: int, last: int) -> Int64s:
        value: Int64s = digits[first].astype(np.int64)
        for place in range(first + 1, last):
            value = value * 10 + digits[place]
        return value

    year, month, day = number(1, 5), number(6, 8), number(9, 11)
    hour, minute, second = number(12, 14), number(15, 17), number(18, 20)
    right &= (year >= 1) & (month >= 1) & (month <= 12) & (day >= 1)
    right &= (hour <= 23) & (minute <= 59) & (second <= 59)
    right &= day <= _DAYS_IN_MONTH[np.clip(month, 0, 12)]
    leap = (year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0))
    right &= (month != 2) | (day <= 28) | leap
    seconds = ((_days(year, month, day) * 24 + hour) * 60 + minute) * 60 + second
    fraction = number(21, 24) if form is _LONG else 0
    return seconds * 1000 + fraction, right


def _days(year: Int64s, month: Int64s, day: Int64s) -> Int64s:
    """Days since 1970-01-01 in the Gregorian calendar, counted in years that begin in March."""
    year = year - (month <= 2)
    era = year // 400
    year_of_era = year - era * 400
    day_of_year = (153 * (month + np.where(month > 2, -3, 9)) + 2) // 5 + day - 1
    days: Int64s = era * 146097 + year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year - 719468
    return days
