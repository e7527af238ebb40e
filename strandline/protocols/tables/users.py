"""The user of a request: from the declared ``identify``, an API key, or a plain header if there are no API keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from strandline.service.access import Access
from strandline.service.http import Call
from strandline.tables import TableError

#: Returns the user of a request from its headers (names in lower case), or None if it does not know the user. It runs
#: on the event loop for every request, so it must be quick.
Identify = Callable[[Mapping[str, str]], str | None]

#: The header that names the user. Any client may send it if there are no API keys, otherwise keys with the admin scope.
USER_HEADER = "strandline-user"
#: The user of requests that name none, if there are no API keys.
ANONYMOUS = "anonymous"
MAX_USER_BYTES = 256


class Users:
    """``keyed``: whether API keys are configured."""

    def __init__(self, keyed: bool, identify: Identify | None) -> None:
        self._keyed = keyed
        self._identify = identify

    @property
    def by_headers(self) -> bool:
        """Whether all headers of a request are needed to identify its user."""
        return self._identify is not None

    def known(self, call: Call, scope: str) -> str:
        """The user, who must be known and have the scope."""
        user, access = self._look(call)
        if user is None:
            if self._keyed:
                raise TableError("NOT_AUTHENTICATED", "a valid API key is required")
            raise TableError("NOT_AUTHENTICATED", "the request does not identify a user")
        if access is not None and not access.may(scope):
            raise TableError("FORBIDDEN", f"the API key lacks the {scope} scope")
        return user

    def acting(self, call: Call, scope: str) -> str | None:
        """The user who changes or reads rows of others. None, for a key with the admin scope that acts for no user,
        may do everything."""
        user = self.known(call, scope)
        is_admin = self._keyed and user == call.access.id and call.access.may("admin")
        return None if is_admin else user

    def anybody(self, call: Call) -> str | None:
        """The user, if known: for public reads."""
        return self._look(call)[0]

    def _look(self, call: Call) -> tuple[str | None, Access | None]:
        """The user, and the access of the API key if the key identifies the user."""
        if self._identify is not None:
            user = self._identify(_headers(call))
            if user is not None:
                return _checked(user), None
        access = call.access
        said = _said(call)
        if not self._keyed:
            if self._identify is not None:
                # ``identify`` does not know the user, and without API keys a header proves nothing.
                return None, None
            return (ANONYMOUS if said is None else _checked(said)), None
        if not access.id:
            return None, None
        if said is None or said == access.id:
            return access.id, access
        if not access.may("admin"):
            raise TableError("FORBIDDEN", "only an API key with the admin scope may act for another user")
        return _checked(said), access

    def check_names(self, call: Call, table: str, parent: str) -> None:
        """Refuse an API key that may not access this log."""
        if self._keyed and not call.access.may_touch(f"{table}/{parent}"):
            raise TableError("FORBIDDEN", f"the API key may not access {table}/{parent}")


def _headers(call: Call) -> dict[str, str]:
    """The headers as text. Event sources in browsers cannot send headers, so the query string may replace them."""
    headers = {name.decode("latin-1"): _text(value) for name, value in call.head.headers.items()}
    route = call.head.route
    if route is not None and route.stream:
        if "token" in call.query:
            headers.setdefault("authorization", f"Bearer {call.query['token']}")
        if "user" in call.query:
            headers.setdefault(USER_HEADER, call.query["user"])
    return headers


def _said(call: Call) -> str | None:
    value = call.head.headers.get(USER_HEADER.encode())
    if value is not None:
        return _text(value)
    route = call.head.route
    return call.query.get("user") if route is not None and route.stream else None


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def _checked(user: str) -> str:
    if not isinstance(user, str) or not 1 <= len(user.encode(errors="replace")) <= MAX_USER_BYTES:
        raise TableError("VALIDATION_FAILED", f"the user must have 1 to {MAX_USER_BYTES} bytes")
    if not user.isprintable():
        raise TableError("VALIDATION_FAILED", "the user must not contain control characters")
    return user
