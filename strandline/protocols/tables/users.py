"""Who asks: by what the declarations say, by an API key, or by a plain header where there are no keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from strandline.service.access import Access
from strandline.service.http import Call
from strandline.tables import TableError

#: Says by the headers of a request (names in lower case) which user it is from; None: it does not know. It is called
#: on the event loop, for every request: it must be quick.
Identify = Callable[[Mapping[str, str]], str | None]

#: Says for whom a request is made: anybody's word where there are no keys, else that of a key with the admin scope.
USER_HEADER = "strandline-user"
#: Who it is when nobody says, where there are no keys.
ANONYMOUS = "anonymous"
MAX_USER_BYTES = 256


class Users:
    """``keyed``: whether API keys are configured."""

    def __init__(self, keyed: bool, identify: Identify | None) -> None:
        self._keyed = keyed
        self._identify = identify

    @property
    def by_headers(self) -> bool:
        """Whether all headers of a request are needed to tell who it is from."""
        return self._identify is not None

    def known(self, call: Call, scope: str) -> str:
        """The user, who must be known and allowed to do this."""
        user, access = self._look(call)
        if user is None:
            if self._keyed:
                raise TableError("NOT_AUTHENTICATED", "a valid API key is required")
            raise TableError("NOT_AUTHENTICATED", "the request does not say who the user is")
        if access is not None and not access.may(scope):
            raise TableError("FORBIDDEN", f"the API key lacks the {scope} scope")
        return user

    def acting(self, call: Call, scope: str) -> str | None:
        """Who changes or reads what others wrote. A key with the admin scope that acts for nobody may do everything, as
        the program itself may: that is None."""
        user = self.known(call, scope)
        is_admin = self._keyed and user == call.access.id and call.access.may("admin")
        return None if is_admin else user

    def anybody(self, call: Call) -> str | None:
        """The user as far as one is known: for what everybody may read."""
        return self._look(call)[0]

    def _look(self, call: Call) -> tuple[str | None, Access | None]:
        """The user, and what the API key allows if it was the key that said so."""
        if self._identify is not None:
            user = self._identify(_headers(call))
            if user is not None:
                return _checked(user), None
        access = call.access
        said = _said(call)
        if not self._keyed:
            if self._identify is not None:
                # It has been asked, and anybody could say anything in a header.
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
        """Refuse a key that may not touch this log."""
        if self._keyed and not call.access.may_touch(f"{table}/{parent}"):
            raise TableError("FORBIDDEN", f"the API key may not access {table}/{parent}")


def _headers(call: Call) -> dict[str, str]:
    """The headers as text. An event stream of a browser has none of its own, so its query string may say the same."""
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
        raise TableError("VALIDATION_FAILED", f"a user must be text of 1 to {MAX_USER_BYTES} bytes")
    if not user.isprintable():
        raise TableError("VALIDATION_FAILED", "a user must not have characters that cannot be printed")
    return user
