"""Configuration files of Starfish, in JSON or YAML. Their tables know the lines of their keys, for error messages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar, NoReturn

import yaml

from strandline.collections.config_tables import BadConfigFile, Table, shown

#: Files with these suffixes are YAML; all others are JSON.
YAML_SUFFIXES = (".yaml", ".yml")

#: The maximum size of a file. Reading a mebibyte of YAML takes seconds.
MAX_FILE_BYTES = 1 << 20
#: The maximum number of values in a file. A value that aliases refer to counts every time, because readers of the
#: configuration visit it every time.
MAX_VALUES = 100_000
#: The maximum size of an integer. No option has a larger one, and Python does not print much larger ones.
_MAX_BITS = 64

_TIMESTAMP = "tag:yaml.org,2002:timestamp"
#: Types of YAML that JSON does not have.
_FOREIGN_TAGS = frozenset(f"tag:yaml.org,2002:{name}" for name in ("binary", "omap", "pairs", "set", "timestamp"))
_KEY_TAGS = ("tag:yaml.org,2002:str", "tag:yaml.org,2002:merge")


def read_config_file(path: Path) -> Any:
    """The content of a file, by its suffix. Raises :class:`BadConfigFile`."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
        if len(content) > MAX_FILE_BYTES:
            raise BadConfigFile(f"{path} has more than {MAX_FILE_BYTES} bytes")
        text = content.decode()
    except OSError as error:
        raise BadConfigFile(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise BadConfigFile(f"{path} is not UTF-8: byte {error.start} is not valid") from None
    if not text.strip():
        raise BadConfigFile(f"{path} is empty")
    read = _read_yaml if path.suffix.lower() in YAML_SUFFIXES else _read_json
    try:
        return read(path, text)
    except RecursionError:
        raise BadConfigFile(f"{path} is nested too deeply") from None


def _read_yaml(path: Path, text: str) -> Any:
    try:
        loader = _Loader(text)
        try:
            node = loader.get_single_node()
            if node is None:
                raise BadConfigFile(f"{path} is empty")
            _Nodes(path).check(node)
            value = loader.construct_document(node)
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = "" if mark is None else f", line {mark.line + 1}, column {mark.column + 1}"
        raise BadConfigFile(f"{path}{where}: it is not YAML: {error.problem or error.context}") from None
    except yaml.YAMLError as error:
        raise BadConfigFile(f"{path} is not YAML: {str(error).partition(chr(10))[0]}") from None
    return _located(value, node, {})


def _read_json(path: Path, text: str) -> Any:
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        where = f"{path}, line {error.lineno}, column {error.colno}"
        raise BadConfigFile(f"{where}: it is not JSON: {error.msg}") from None
    except ValueError as error:
        raise BadConfigFile(f"{path} is not JSON: {error}") from None
    try:
        # JSON is YAML, except for tabs between values. The JSON parser does not tell the lines of values.
        node = yaml.compose(text.replace("\t", " "), _Loader)
    except yaml.YAMLError:
        return value
    _Nodes(path).check(node)
    return _located(value, node, {})


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number")


class _Loader(yaml.SafeLoader):  # type: ignore[misc]  # the library has no types
    """Reads dates as text, because JSON has no dates."""

    yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {
        first: [(tag, pattern) for tag, pattern in resolvers if tag != _TIMESTAMP]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_object(self, node: Any, deep: bool = False) -> Any:
        """The library raises errors of Python for some values, for example for the integer ``0x_``."""
        try:
            value = super().construct_object(node, deep)
        except (ValueError, LookupError):
            raise _bad_value(node, f"{_text(node)} is not of the type {node.tag.rpartition(':')[2]}") from None
        if isinstance(value, int) and value.bit_length() > _MAX_BITS:
            raise _bad_value(node, f"the integer {_text(node)} is too large")
        return value


def _bad_value(node: Any, why: str) -> yaml.YAMLError:
    return yaml.constructor.ConstructorError(None, None, why, node.start_mark)


class _Nodes:
    """Checks the values of a file and the keys of its tables, before merges (``<<``) add further ones."""

    def __init__(self, path: Path) -> None:
        self._path = path
        #: The number of values in a list or a table, with aliases expanded.
        self._sizes: dict[int, int] = {}
        self._open: set[int] = set()

    def check(self, node: Any) -> int:
        """Return the number of values in a node. Raises :class:`BadConfigFile` for too many of them, for a key that is
        repeated or not text, for an alias to its own parent, and for types that JSON does not have."""
        if node.tag in _FOREIGN_TAGS:
            raise self._bad(node, f"the type {node.tag.rpartition(':')[2]} is not supported")
        if isinstance(node, yaml.ScalarNode):
            return 1
        if id(node) in self._sizes:
            return self._sizes[id(node)]
        if id(node) in self._open:
            raise self._bad(node, "the value contains an alias to itself")
        self._open.add(id(node))
        if isinstance(node, yaml.MappingNode):
            self._check_keys(node)
        size = 1
        for part in node.value:
            size += self.check(part[1] if isinstance(part, tuple) else part)
            if size > MAX_VALUES:
                raise self._bad(node, f"more than {MAX_VALUES} values, counting those of aliases each time")
        self._open.remove(id(node))
        self._sizes[id(node)] = size
        return size

    def _check_keys(self, node: yaml.MappingNode) -> None:
        lines: dict[str, int] = {}
        for key, _ in node.value:
            if key.tag not in _KEY_TAGS:
                raise self._bad(key, f"the key {_text(key)} is not text; put it in quotes")
            if key.value in lines:
                raise self._bad(key, f"the key {_text(key)} is already on line {lines[key.value]}")
            lines[key.value] = _line(key)

    def _bad(self, node: Any, why: str) -> BadConfigFile:
        return BadConfigFile(f"{self._path}, line {_line(node)}: {why}")


def _located(value: Any, node: Any, done: dict[int, Any]) -> Any:
    """The value of a node, with lines in its tables. Values that YAML refers to several times stay shared."""
    if not isinstance(value, dict | list):
        return value
    if id(node) not in done:
        if isinstance(value, list):
            done[id(node)] = [_located(one, part, done) for one, part in zip(value, node.value, strict=True)]
        else:
            # Of a merged key and the table's own, the last one counts.
            parts = {key.value: (key, part) for key, part in node.value}
            values = {name: _located(value[name], part, done) for name, (_, part) in parts.items()}
            done[id(node)] = Table(values, _line(node), {name: _line(key) for name, (key, _) in parts.items()})
    return done[id(node)]


def _line(node: Any) -> int:
    line: int = node.start_mark.line
    return line + 1


def _text(node: Any) -> str:
    return shown(node.value) if isinstance(node, yaml.ScalarNode) else "in front of the colon"
