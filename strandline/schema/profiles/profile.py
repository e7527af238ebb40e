"""What a profile is: a stream's agreement on what its records mean."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from strandline.schema.errors import SchemaError
from strandline.schema.registry import Registry


class Profile(ABC):
    """A value: it is never changed, and holds nothing of any stream."""

    kind: ClassVar[str]
    #: Whether records are rewritten before they are stored. Without it ``normalise`` only looks at them.
    normalises: ClassVar[bool] = False
    #: Whether its streams hold JSON.
    needs_json: ClassVar[bool] = True

    @abstractmethod
    def document(self) -> dict[str, Any]:
        """What is shown under "profile"; keys that were not set are left out."""

    @property
    def named_streams(self) -> tuple[str, ...]:
        """Other streams that the profile names."""
        return ()

    def stored(self) -> dict[str, Any]:
        """Builtins that ``load_profile`` makes this profile of."""
        return self.document()

    def check_install(self, *, is_json: bool, is_empty: bool, current: Profile) -> None:
        """Raise SchemaError if a stream like this, that has the profile ``current``, cannot have this one."""
        if self.needs_json and not is_json:
            raise SchemaError(f"{self.kind} profile requires application/json stream content-type")

    def registry(self, stream_name: str) -> Registry | None:
        """The registry that replaces the stream's when the profile is installed; None keeps what is there."""
        return None

    def normalise(self, documents: list[Any], now: int) -> list[Any]:
        """What is stored of the decoded records of one append. ``now`` is in milliseconds. Raises SchemaError for the
        first that is not as it should be, and says which. What was given stays as it is."""
        return documents

    def keys_of(self, documents: list[Any]) -> list[str | None] | None:
        """The routing keys of normalised records, where neither schema nor header say them; None: they have none."""
        return None


def in_batch(error: SchemaError, index: int, count: int) -> SchemaError:
    """The error of one record of several, saying which."""
    return error if count == 1 else SchemaError(f"element {index}: {error}", error.status)
