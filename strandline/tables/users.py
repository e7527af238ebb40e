"""Users of tables: an id, and the roles that the application gives the user."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import force_setattr

from strandline.engine.record import MAX_KEY_BYTES
from strandline.tables.errors import invalid
from strandline.tables.names import size_of


class User(Struct, frozen=True):
    """A user. A user who has one of the ``moderators`` roles of a table acts as the owner of all its parents.

    ``expires_at`` is the time in milliseconds when the user must be identified again; live responses end within 15
    seconds.
    """

    id: str
    roles: Sequence[str] = ()
    expires_at: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.id, str):
            raise TypeError(f"the id of a user must be text, not {self.id!r}")
        if self.roles != ():
            if isinstance(self.roles, str) or not all(isinstance(role, str) for role in self.roles):
                raise TypeError(f"the roles of a user must be a list of names, not {self.roles!r}")
            force_setattr(self, "roles", tuple(self.roles))
        if self.expires_at is not None and type(self.expires_at) is not int:
            raise TypeError(f"expires_at of a user must be a time in milliseconds, not {self.expires_at!r}")


def check_user(user: object) -> User | None:
    """The user, who may be given as an id. Raises TableError."""
    if user is None:
        return None
    found = User(user) if isinstance(user, str) else user
    if not isinstance(found, User) or not 1 <= size_of(found.id) <= MAX_KEY_BYTES:
        raise invalid(f"user must be text of 1 to {MAX_KEY_BYTES} bytes", "user")
    return found


def id_of(user: User | None) -> str | None:
    return None if user is None else user.id
