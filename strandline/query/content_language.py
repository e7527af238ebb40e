"""The language of content filters, for logs without a schema or a search configuration.

.status = failed                    the member of a JSON object; paths are as in jq: .user.name, .items[0].sku, ."a b"
.amount >= 100                      relations: = != > >= < <=
.message ~ /time(d )?out/i          a regular expression (RE2) on a value
.user                               there is a value
"card declined"  declined           the text of the record contains this, ignoring case
/E[0-9]{4}/                         the text of the record matches
.a = 1 and not (.b = 2 or .c = 3)   and binds tighter than or; a space means and
"""

from __future__ import annotations

import re
from typing import Literal, cast

import msgspec

from strandline.query.errors import BadQuery

#: The longest filter, and the most conditions of one. Each condition costs time per record.
MAX_LENGTH = 2000
MAX_CONDITIONS = 30
MAX_DEPTH = 20
#: The total size of the regular expressions of a filter, with repetitions written out. Comparing one byte may take time
#: proportional to it, and so does compiling it.
MAX_PATTERN_SIZE = 500

Relation = Literal["=", "!=", ">", ">=", "<", "<=", "~"]
#: A member of an object, or the index of an element. A member of an array is that of any of its elements.
Path = tuple[str | int, ...]


class Text(msgspec.Struct, frozen=True):
    text: str


class Pattern(msgspec.Struct, frozen=True):
    pattern: str
    ignore_case: bool


class Has(msgspec.Struct, frozen=True):
    path: Path


class Compare(msgspec.Struct, frozen=True):
    """``value`` is the text as written, or a pattern for ``~``; ``quoted`` text is never a number or a word of JSON."""

    path: Path
    relation: Relation
    value: str | Pattern
    quoted: bool = False


class Not(msgspec.Struct, frozen=True):
    node: Node


class Both(msgspec.Struct, frozen=True):
    nodes: tuple[Node, ...]


class Either(msgspec.Struct, frozen=True):
    nodes: tuple[Node, ...]


Node = Text | Pattern | Has | Compare | Not | Both | Either

_STRING = r'"(?:[^"\\]|\\.)*"'
_PATH = rf"(?:\.(?:[\w$@-]+|{_STRING})|\[[0-9]{{1,9}}\])+"
_TOKEN = re.compile(
    rf"(?P<open>\()|(?P<close>\))|(?P<pattern>/(?:[^/\\]|\\.)+/i?(?![^\s()]))|(?P<path>{_PATH})(?![^\s()=!<>~])"
    rf"|(?P<relation>>=|<=|!=|=|<|>|~)|(?P<string>{_STRING})|(?P<word>[^\s()=!<>~\"]+)"
)
#: The parts of a regular expression: a class of characters, a repetition, or a single character or sign.
_PART = re.compile(
    r"(?P<set>\[\^?\]?(?:\[:\^?\w+:\]|\\.|[^\]\\])*\])|(?P<class>\\[pP](?:\{[^}]*\}|.))|(?P<quoted>\\Q.*?(?:\\E|$))"
    r"|\\x\{[^}]*\}|\\.|(?P<times>\{([0-9]{1,9})(?:(,)([0-9]{0,9}))?\})|(?P<sign>[()|*+?^$])|.",
    re.DOTALL,
)
#: About how many states a class of Unicode, or the characters outside of a set, take compared to one character.
_UNICODE_SIZE = 20
_OTHERS_SIZE = 2
_STEP = re.compile(rf"\.(?:([\w$@-]+)|({_STRING}))|\[([0-9]+)\]")


def parse(text: str) -> Node:
    """Parse a filter. Raises BadQuery."""
    if len(text) > MAX_LENGTH:
        raise BadQuery(f"the filter is longer than {MAX_LENGTH} characters")
    return _Parser(text).whole()


class _Token(msgspec.Struct, frozen=True):
    kind: str
    text: str


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens = list(_tokens(text))
        self._at = 0
        self._depth = 0

    def whole(self) -> Node:
        node = self._either()
        if self._at < len(self._tokens):
            raise BadQuery(f"unexpected {self._tokens[self._at].text!r} in the filter")
        return node

    def _either(self) -> Node:
        nodes = [self._both()]
        while self._takes_word("or"):
            nodes.append(self._both())
        return nodes[0] if len(nodes) == 1 else Either(tuple(nodes))

    def _both(self) -> Node:
        nodes = [self._one()]
        while self._takes_word("and") or not (self._peek("close") or self._is_word("or") or self._ends):
            nodes.append(self._one())
        return nodes[0] if len(nodes) == 1 else Both(tuple(nodes))

    def _one(self) -> Node:
        if self._ends:
            raise BadQuery("the filter ends where a condition is expected")
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise BadQuery(f"the filter is nested more than {MAX_DEPTH} levels deep")
        try:
            return self._condition()
        finally:
            self._depth -= 1

    def _condition(self) -> Node:
        if self._takes_word("not"):
            return Not(self._one())
        token = self._next()
        if token.kind == "open":
            node = self._either()
            if not self._peek("close"):
                raise BadQuery("a ( in the filter has no )")
            self._at += 1
            return node
        if token.kind == "path":
            path = _path(token.text)
            return self._compared(path) if self._peek("relation") else Has(path)
        if token.kind == "pattern":
            return _pattern(token.text)
        if token.kind in ("string", "word"):
            if self._peek("relation"):
                raise BadQuery(f"expected a path that starts with a dot before the relation, for example .{token.text}")
            return Text(_unquoted(token))
        raise BadQuery(f"unexpected {token.text!r} in the filter")

    def _compared(self, path: Path) -> Compare:
        relation = cast(Relation, self._next().text)
        if self._ends or self._tokens[self._at].kind in ("open", "close", "relation"):
            raise BadQuery(f"expected a value after {relation}")
        token = self._next()
        if relation == "~":
            written = _pattern(token.text) if token.kind == "pattern" else Pattern(_unquoted(token), False)
            return Compare(path, relation, written)
        return Compare(path, relation, _unquoted(token), token.kind == "string")

    # --- tokens ------------------------------------------------------------------------------------------------------

    @property
    def _ends(self) -> bool:
        return self._at >= len(self._tokens)

    def _peek(self, kind: str) -> bool:
        return not self._ends and self._tokens[self._at].kind == kind

    def _is_word(self, word: str) -> bool:
        return self._peek("word") and self._tokens[self._at].text.lower() == word

    def _takes_word(self, word: str) -> bool:
        found = self._is_word(word)
        self._at += found
        return found

    def _next(self) -> _Token:
        self._at += 1
        return self._tokens[self._at - 1]


def _tokens(text: str) -> list[_Token]:
    found, at = [], 0
    while at < len(text):
        if text[at].isspace():
            at += 1
            continue
        match = _TOKEN.match(text, at)
        if match is None:
            raise BadQuery(f"cannot read the filter at {text[at : at + 20]!r}")
        found.append(_Token(match.lastgroup or "", match[0]))
        at = match.end()
    if sum(token.kind in ("path", "pattern", "string", "word") for token in found) > 2 * MAX_CONDITIONS:
        raise BadQuery(f"the filter has more than {MAX_CONDITIONS} conditions")
    if not found:
        raise BadQuery("the filter is empty")
    return found


def _path(text: str) -> Path:
    steps: list[str | int] = []
    for name, string, index in _STEP.findall(text):
        steps.append(int(index) if index else _string(string) if string else name)
    return tuple(steps)


def pattern_size(pattern: str) -> int:
    """About the number of states of a regular expression, which need not be valid."""
    # The sizes of the open groups, and the size of the last part, which a repetition multiplies.
    groups, last = [0], 0
    for part in _PART.finditer(pattern):
        kind, text = part.lastgroup, part[0]
        if part["times"] is not None:
            least, most = int(part[5]), int(part[7] or 0)
            times = max(least + (part[6] is not None), most, 1)
            groups[-1] += last * (times - 1)
            last *= times
            continue
        if text == "(" and kind == "sign":
            groups.append(0)
            continue
        if text == ")" and kind == "sign":
            last = groups.pop()
            if not groups:
                groups.append(0)
        elif kind == "sign":
            # A star belongs to the part before it, which a repetition may follow in a group only.
            continue
        elif kind == "set":
            last = 1 + _UNICODE_SIZE * len(re.findall(r"\\[pP]", text)) + _OTHERS_SIZE * text.startswith("[^")
        elif kind == "class":
            last = _UNICODE_SIZE
        elif kind == "quoted":
            last = len(text)
        else:
            last = _OTHERS_SIZE if text == "." else 1
        groups[-1] += last
    return sum(groups)


def _pattern(text: str) -> Pattern:
    ignore_case = text.endswith("/i")
    return Pattern(text[1 : -2 if ignore_case else -1].replace("\\/", "/"), ignore_case)


def _unquoted(token: _Token) -> str:
    return _string(token.text) if token.kind == "string" else token.text


def _string(text: str) -> str:
    try:
        return msgspec.json.decode(text.encode(), type=str)
    except msgspec.MsgspecError:
        raise BadQuery(f"{text} is not a valid string; write a backslash as two") from None
