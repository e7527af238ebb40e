"""Hooks: functions of a declaration that run before and after a write, in the same transaction."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from strandline.tables.errors import BadDeclaration

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
    """Functions ``hook(ctx, *, …)``; see :class:`~strandline.tables.operations.HookContext` for what they may do.

    Each hook is called with those of these arguments that its signature names: ``parent`` and ``payload`` before an
    append, ``row`` after it; ``id``, ``patch`` and ``prev`` before an update, and also ``row`` after it; ``id`` and
    ``prev`` before and after a removal. A value returned by ``before_append`` or ``before_update`` replaces the payload
    or the patch and is validated again.

    All hooks run before anything is written, and their own writes are part of the same transaction. An exception in any
    hook aborts the transaction. No other write to the tables can run at the same time, so hooks must be fast and must
    not block.
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

    def __init__(self, everywhere: Hooks, own: Hooks) -> None:
        self._all = (everywhere, own)
        self.on_rm = everywhere.on_rm or own.on_rm

    def has(self, name: str) -> bool:
        return any(getattr(hooks, name) is not None for hooks in self._all)

    def tell(self, name: str, context: object, **arguments: Any) -> None:
        for hooks in self._all:
            hook: Hook | None = getattr(hooks, name)
            if hook is not None:
                hook(context, **arguments)

    def replace(self, name: str, context: object, what: str, **arguments: Any) -> Any:
        """Run the hooks and return the argument ``what``, as changed or replaced by them."""
        for hooks in self._all:
            hook: Hook | None = getattr(hooks, name)
            if hook is not None:
                returned = hook(context, **arguments)
                if returned is not None:
                    arguments[what] = returned
        return arguments[what]


def _checked(name: str, hook: Hook) -> Hook:
    """Wrap a hook so that it gets only the arguments it takes. Raises BadDeclaration if its signature does not fit."""
    if not callable(hook):
        raise BadDeclaration(f"{name} must be a function, not {type(hook).__name__}")
    if inspect.iscoroutinefunction(hook):
        raise BadDeclaration(f"{name} must be a plain function: hooks run inside the write and cannot await")
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
    dropped = frozenset(available) - taken

    def call(context: object, **arguments: Any) -> Any:
        for each in dropped:
            del arguments[each]
        return hook(context, **arguments)

    return call
