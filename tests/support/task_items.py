"""Something to do for the tasks of a test."""

from __future__ import annotations

import os

import msgspec


class Number(msgspec.Struct):
    value: int


class Doubled(msgspec.Struct):
    value: int
    process: int


def refuse(number: Number) -> Doubled:
    raise OSError(28, "No space left on device", f"file-{number.value}")


def double(number: Number) -> Doubled:
    return Doubled(2 * number.value, os.getpid())
