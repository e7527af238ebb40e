"""Promote a document through lenses. Each lens is compiled into functions once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import UNSET

from strandline.query.pointers import ARRAY_INDEX
from strandline.schema.errors import SchemaError
from strandline.schema.lenses import (
    Add,
    Convert,
    CopyOp,
    Each,
    HeadOp,
    Hoist,
    Inside,
    Operation,
    Plunge,
    Remove,
    Rename,
    Wrap,
)
from strandline.schema.structure import Path
from strandline.schema.transforms import TransformFailed, has_type

#: Takes a document, which it may change, and returns the result.
Step = Callable[[Any], Any]


def compile_steps(operations: Sequence[Operation]) -> Step:
    """Return one function for all operations, in their order. It raises SchemaError for a document that they do not
    fit."""
    steps = [_step(operation) for operation in operations]
    if len(steps) == 1:
        return steps[0]

    def run(document: Any) -> Any:
        for step in steps:
            document = step(document)
        return document

    return run


def duplicate(value: Any) -> Any:
    """Return a copy that shares no mutable value."""
    if isinstance(value, dict):
        return {name: duplicate(each) for name, each in value.items()}
    if isinstance(value, list):
        return [duplicate(each) for each in value]
    return value


def _step(operation: Operation) -> Step:
    match operation:
        case Rename():
            return _rename(operation)
        case CopyOp():
            return _copy(operation)
        case Add():
            return _add(operation)
        case Remove():
            return _remove(operation)
        case Hoist():
            return _hoist(operation)
        case Plunge():
            return _plunge(operation)
        case Wrap():
            return _change(operation.path, lambda value: [value])
        case HeadOp():
            return _change(operation.path, _first)
        case Convert():
            return _convert(operation)
        case Inside():
            return _inside(operation)
        case Each():
            return _each(operation)


def _failed(message: str) -> SchemaError:
    return SchemaError(f"lens failed: {message}")


# --- paths in a document ---------------------------------------------------------------------------------------------


def _get(document: Any, path: Path) -> Any:
    found = document
    for segment in path:
        if isinstance(found, dict) and segment in found:
            found = found[segment]
        elif isinstance(found, list) and ARRAY_INDEX.match(segment) and int(segment) < len(found):
            found = found[int(segment)]
        else:
            raise _failed(f"no value at /{'/'.join(path)}")
    return found


def _put(document: Any, path: Path, value: Any) -> Any:
    """Return the changed document, or the value itself if the path is empty. An element of an array must exist."""
    if not path:
        return value
    parent, name = _get(document, path[:-1]), path[-1]
    if isinstance(parent, dict):
        parent[name] = value
    elif isinstance(parent, list) and ARRAY_INDEX.match(name) and int(name) < len(parent):
        parent[int(name)] = value
    else:
        raise _failed(f"/{'/'.join(path)} cannot be set")
    return document


def _delete(document: Any, path: Path) -> None:
    parent = _get(document, path[:-1]) if path else None
    if not isinstance(parent, dict) or path[-1] not in parent:
        raise _failed(f"/{'/'.join(path)} cannot be removed")
    del parent[path[-1]]


# --- operations ------------------------------------------------------------------------------------------------------


def _rename(operation: Rename) -> Step:
    source, target = operation.source, operation.target

    if len(source) == len(target) == 1:
        old, new = source[0], target[0]

        def rename_at_the_top(document: Any) -> Any:
            if not isinstance(document, dict) or old not in document:
                raise _failed(f"no value at /{old}")
            document[new] = document.pop(old)
            return document

        return rename_at_the_top

    def rename(document: Any) -> Any:
        document = _put(document, target, _get(document, source))
        _delete(document, source)
        return document

    return rename


def _copy(operation: CopyOp) -> Step:
    source, target = operation.source, operation.target
    return lambda document: _put(document, target, duplicate(_get(document, source)))


def _add(operation: Add) -> Step:
    path, default = operation.path, operation.default
    assert default is not UNSET, "lenses without a default are refused"
    return lambda document: _put(document, path, duplicate(default))


def _remove(operation: Remove) -> Step:
    def remove(document: Any) -> Any:
        _delete(document, operation.path)
        return document

    return remove


def _hoist(operation: Hoist) -> Step:
    place = (*operation.host, operation.name)

    def hoist(document: Any) -> Any:
        if not isinstance(_get(document, operation.host), dict):
            raise _failed(f"/{'/'.join(operation.host)} is not an object")
        value = _get(document, place)
        if operation.remove:
            _delete(document, place)
        else:
            value = duplicate(value)
        return _put(document, operation.target, value)

    return hoist


def _plunge(operation: Plunge) -> Step:
    source, host, name = operation.source, operation.host, operation.name

    def plunge(document: Any) -> Any:
        value = _get(document, source)
        if operation.remove:
            _delete(document, source)
        else:
            value = duplicate(value)
        if operation.create and host:
            parent = _get(document, host[:-1])
            if isinstance(parent, dict):
                parent.setdefault(host[-1], {})
        inside = _get(document, host)
        if not isinstance(inside, dict):
            raise _failed(f"/{'/'.join(host)} is not an object")
        inside[name] = value
        return document

    return plunge


def _change(path: Path, function: Callable[[Any], Any]) -> Step:
    return lambda document: _put(document, path, function(_get(document, path)))


def _first(value: Any) -> Any:
    if not isinstance(value, list) or not value:
        raise _failed("head needs an array with an element")
    return value[0]


def _convert(operation: Convert) -> Step:
    def convert(value: Any) -> Any:
        if not has_type(value, operation.from_type):
            raise _failed(f"convert expected {operation.from_type}")
        try:
            result = operation.forward(value)
        except TransformFailed as error:
            raise _failed(str(error)) from None
        if not has_type(result, operation.to_type):
            raise _failed(f"convert did not return {operation.to_type}")
        return result

    return _change(operation.path, convert)


def _inside(operation: Inside) -> Step:
    run = compile_steps(operation.operations)

    def change(value: Any) -> Any:
        if not isinstance(value, dict):
            raise _failed(f"/{'/'.join(operation.path)} is not an object")
        return run(value)

    return _change(operation.path, change)


def _each(operation: Each) -> Step:
    run = compile_steps(operation.operations)

    def change(value: Any) -> Any:
        if not isinstance(value, list):
            raise _failed(f"/{'/'.join(operation.path)} is not an array")
        return [run(each) for each in value]

    return _change(operation.path, change)
