"""The user of a request: from the declared ``identify``, an API key, or a plain header if there are no API keys."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping

from strandline.engine.errors import SOON_MS
from strandline.service.access import Access
from strandline.service.frequent_warning import FrequentWarning
from strandline.service.http import Answer, Call, Handler, Later, Reply, StreamedAnswer
from strandline.service.problems import Throttled
from strandline.tables import TableError, User

log = logging.getLogger(__name__)

#: Returns the user of a request from its headers (names in lower case): an id, a User with roles, or None if it does
#: not know the user. A plain function runs on the event loop for every request, so it must be quick. A coroutine
#: function may wait for other services.
Identify = Callable[[Mapping[str, str]], "str | User | Awaitable[str | User | None] | None"]

#: The header that names the user. Any client may send it if there are no API keys, otherwise keys with the admin scope.
USER_HEADER = "strandline-user"
#: The user of requests that name none, if there are no API keys.
ANONYMOUS = "anonymous"
MAX_USER_BYTES = 256
#: How long a request waits for a coroutine of ``identify``. Services that look up sessions answer much faster.
IDENTIFY_SECONDS = 5.0
#: The number of requests that may wait for ``identify`` at the same time. More would time out.
MAX_IDENTIFYING = 1_000
CANCELLED = "identify raised CancelledError"


class Users:
    """Identifies the users of requests. ``keyed``: whether API keys are configured."""

    def __init__(self, keyed: bool, identify: Identify | None, seconds: float = IDENTIFY_SECONDS) -> None:
        self._keyed = keyed
        self._identify = identify
        self._seconds = seconds
        self._identifying = 0
        self._warn = FrequentWarning(log, "refused %d requests: identify did not return within %g s")

    @property
    def by_headers(self) -> bool:
        """Whether all headers of a request are needed to identify its user."""
        return self._identify is not None

    def identified(self, handler: Handler) -> Handler:
        """The handler, called when ``identify`` has identified the user of a request."""
        identify = self._identify
        if identify is None:
            return handler

        def handle(call: Call) -> Answer | Later | Awaitable[Answer]:
            try:
                user = identify(_headers(call))
            except asyncio.CancelledError as error:
                raise RuntimeError(CANCELLED) from error
            if inspect.isawaitable(user):
                return self._handle_later(call, user, handler)
            call.head.memo = _identified(user)
            return handler(call)

        return handle

    async def _handle_later(self, call: Call, user: Awaitable[str | User | None], handler: Handler) -> Answer:
        if self._identifying >= MAX_IDENTIFYING:
            if inspect.iscoroutine(user):
                user.close()
            raise Throttled(SOON_MS)
        self._identifying += 1
        try:
            async with asyncio.timeout(self._seconds) as limit:
                call.head.memo = _identified(await user)
        except TimeoutError:
            if not limit.expired():
                raise
            self._warn(self._seconds)
            message = f"the user was not identified within {self._seconds:g} s; retry"
            raise TableError("UNAVAILABLE", message) from None
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            # Only the code of ``identify`` was cancelled; the request was not.
            raise RuntimeError(CANCELLED) from error
        finally:
            self._identifying -= 1
        answer = handler(call)
        return answer if isinstance(answer, Reply | StreamedAnswer) else await answer

    def known(self, call: Call, scope: str | None) -> User:
        """The user, who must be known and have the scope."""
        user, access = self._look(call)
        if user is None:
            if self._keyed:
                raise TableError("NOT_AUTHENTICATED", "a valid API key is required")
            raise TableError("NOT_AUTHENTICATED", "the request does not identify a user")
        if access is not None and scope is not None and not access.may(scope):
            raise TableError("FORBIDDEN", f"the API key lacks the {scope} scope")
        return user

    def acting(self, call: Call, scope: str) -> User | None:
        """The user who changes or reads rows of others. None, for a key with the admin scope that acts for no user,
        may do everything."""
        user = self.known(call, scope)
        is_admin = self._keyed and user.id == call.access.id and call.access.may("admin")
        return None if is_admin else user

    def anybody(self, call: Call) -> User | None:
        """The user, if known: for public reads."""
        return self._look(call)[0]

    def _look(self, call: Call) -> tuple[User | None, Access | None]:
        """The user, and the access of the API key if the key identifies the user."""
        if self._identify is not None:
            user: User | None = call.head.memo
            if user is not None:
                return user, None
        access = call.access
        said = _said(call)
        if not self._keyed:
            if self._identify is not None:
                # ``identify`` does not know the user, and without API keys a header proves nothing.
                return None, None
            return User(ANONYMOUS) if said is None else _checked(User(said)), None
        if not access.id:
            return None, None
        if said is None or said == access.id:
            return User(access.id), access
        if not access.may("admin"):
            raise TableError("FORBIDDEN", "only an API key with the admin scope may act for another user")
        return _checked(User(said)), access

    def may_see(self, call: Call, table: str) -> bool:
        """Whether the prefixes of the API key allow any log of the table."""
        return not self._keyed or call.access.may_touch_some(f"{table}/")

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


def _identified(user: object) -> User | None:
    """The result of ``identify`` as a user."""
    if user is None:
        return None
    if not isinstance(user, str | User):
        raise TypeError(f"identify returned {user!r}; expected the id of a user, a User or None")
    return _checked(User(user) if isinstance(user, str) else user)


def _checked(user: User) -> User:
    if not 1 <= len(user.id.encode(errors="replace")) <= MAX_USER_BYTES:
        raise TableError("VALIDATION_FAILED", f"the user must have 1 to {MAX_USER_BYTES} bytes")
    if not user.id.isprintable():
        raise TableError("VALIDATION_FAILED", "the user must not contain control characters")
    return user
