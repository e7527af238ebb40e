"""What a test needs and does not find."""

from __future__ import annotations

import os
from collections.abc import Iterable
from shutil import which
from typing import NoReturn

import pytest


def unavailable(why: str) -> NoReturn:
    """On a person's machine the test is left out; where everything has to be there, it fails."""
    if os.environ.get("CI", "").lower() == "true":
        pytest.fail(why, pytrace=False)
    pytest.skip(why)


def need(programs: Iterable[str]) -> None:
    """Programs that a test runs."""
    if lacking := [program for program in programs if which(program) is None]:
        unavailable(f"{', '.join(lacking)} not installed")
