"""Hooks: functions of a declaration that run before and after a write, in the same transaction; coroutine functions run
when the write is durable."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any

from strandline.engine.errors import EngineError, RecordTooLarge
from strandline.tables.errors import BadDeclaration, FailedHookWrite, MisusedHook, TableError

#: Called with the context, and with those of the hook's arguments that its signature names, as keyword arguments.
Hook = Callable[..., Any]

#: The arguments available to each hook.
ARGUMENTS: Mapping[str, tuple[str, ...]] = {
    "before_append": ("parent", "payload"),
    "after_append": ("row",),
    "before_update": ("id", "patch", "prev"),
    "after_update": ("id", "patch", "prev", "row"),
    "before_rm": ("id", "prev"),
    "after_rm": ("id", "prev"),
}


@dataclass(frozen=True, kw_only=True)
class Hooks:
    """Functions ``hook(ctx, *, …)``; see :class:`~strandline.tables.hook_context.HookContext` for what they may do.

    Each hook is called with those of these arguments that its signature names: ``parent`` and ``payload`` before an
    append, ``row`` after it; ``id``, ``patch`` and ``prev`` before an update, and also ``row`` after it; ``id`` and
    ``prev`` before and after a removal. A value returned by ``before_append`` or ``before_update`` replaces the payload
    or the patch and is validated again.

    Plain functions run before anything is written, and their own writes are part of the same transaction. A TableError
    that a hook raises refuses the write; any other exception is reported as HOOK_FAILED. In both cases nothing is
    written. No other write to the tables can run at the same time, so such hooks must be fast and must not block.

    ``after_append``, ``after_update`` and ``after_rm`` may be coroutine functions. These run when the write is durable,
    at most once, on an event loop of their own, and receive a :class:`~strandline.tables.hook_context.WriteContext`.
    Their failures are logged.
    """

    before_append: Hook | None = None
    after_append: Hook | None = None
    before_update: Hook | None = None
    after_update: Hook | None = None
    before_rm: Hook | None = None
    after_rm: Hook | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            hook = getattr(self, field.name)
            if hook is not None:
                object.__setattr__(self, field.name, _checked(field.name, hook))

    @property
    def on_rm(self) -> bool:
        """Whether a hook runs for each removed row."""
        return self.before_rm is not None or self.after_rm is not None


NO_HOOKS = Hooks()


class HookChain:
    """The hooks of all tables, followed by those of one table."""

    def __init__(self, table: str, everywhere: Hooks, own: Hooks) -> None:
        self._table = table
        both = (everywhere, own)
        all_hooks = {name: [hook for hooks in both if (hook := getattr(hooks, name)) is not None] for name in ARGUMENTS}
        self._inside = {name: [hook for hook in hooks if not _is_async(hook)] for name, hooks in all_hooks.items()}
        self._after = {name: [hook for hook in hooks if _is_async(hook)] for name, hooks in all_hooks.items()}
        self.on_rm = everywhere.on_rm or own.on_rm

    def has(self, name: str) -> bool:
        return bool(self._inside[name] or self._after[name])

    @property
    def declared(self) -> list[tuple[str, bool]]:
        """The names of the hooks, and whether each runs after the write, when it is durable."""
        inside = [(name, False) for name in ARGUMENTS for _ in self._inside[name]]
        return inside + [(name, True) for name in ARGUMENTS for _ in self._after[name]]

    def after_commit(self, name: str) -> Sequence[Hook]:
        """The hooks that run when the write is durable."""
        return self._after[name]

    def tell(self, name: str, context: object, **arguments: Any) -> None:
        """Run the hooks that are part of the write."""
        for hook in self._inside[name]:
            self._call(name, hook, context, arguments)

    def replace(self, name: str, context: object, what: str, **arguments: Any) -> Any:
        """Run the hooks and return the argument ``what``, as changed or replaced by them."""
        for hook in self._inside[name]:
            returned = self._call(name, hook, context, arguments)
            if returned is not None:
                arguments[what] = returned
        return arguments[what]

    def _call(self, name: str, hook: Hook, context: object, arguments: Mapping[str, Any]) -> Any:
        """Errors that a hook raises to refuse the write reach the caller, and so do errors of the engine. Any other
        exception is a failure of the hook."""
        try:
            returned = hook(context, **arguments)
            if inspect.isawaitable(returned):
                if inspect.iscoroutine(returned):
                    returned.close()
                raise MisusedHook(f"{name} returned an awaitable: declare the hook itself with async def")
        except FailedHookWrite as error:
            raise self._failed(name) from error
        except (TableError, EngineError):
            raise
        except Exception as error:
            raise self._failed(name) from error
        return returned

    @contextmanager
    def result_of(self, name: str) -> Iterator[None]:
        """Inside, the result of a hook is checked: if it is not valid, the hook has failed."""
        try:
            yield
        except (TableError, RecordTooLarge) as error:
            raise self._failed(name) from error

    def _failed(self, name: str) -> TableError:
        message = f"the hook {name} of the table {self._table} failed; nothing was written"
        return TableError("HOOK_FAILED", message, table=self._table, hook=name)


def _is_async(hook: Hook) -> bool:
    return inspect.iscoroutinefunction(hook) or inspect.iscoroutinefunction(getattr(hook, "__call__", None))  # noqa: B004


def _checked(name: str, hook: Hook) -> Hook:
    """Wrap a hook so that it gets only the arguments it takes. Raises BadDeclaration if its signature does not fit."""
    if not callable(hook):
        raise BadDeclaration(f"{name} must be a function, not {type(hook).__name__}")
    if _is_async(hook) and name.startswith("before_"):
        raise BadDeclaration(
            f"{name} must be a plain function: it runs inside the write and cannot await. Only hooks that run after a "
            "write can be coroutine functions"
        )
    available = ARGUMENTS[name]
    parameters = list(inspect.signature(hook).parameters.values())
    if any(each.kind is each.VAR_KEYWORD for each in parameters):
        return hook
    taken = {each.name for each in parameters[1:] if each.kind in (each.KEYWORD_ONLY, each.POSITIONAL_OR_KEYWORD)}
    needed = {
        each.name for each in parameters[1:] if each.default is each.empty and each.kind is not each.VAR_POSITIONAL
    }
    if not parameters or not needed <= set(available) & taken:
        raise BadDeclaration(f"{name} must take a context and, as keyword arguments, only: {', '.join(available)}")
    if taken >= set(available):
        return hook

    def call(context: object, **arguments: Any) -> Any:
        return hook(context, **{key: value for key, value in arguments.items() if key in taken})

    async def call_later(context: object, **arguments: Any) -> Any:
        return await call(context, **arguments)

    return call_later if _is_async(hook) else call
