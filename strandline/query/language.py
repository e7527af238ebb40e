"""The query language: from a text to a tree. What the names in it mean is said by a search configuration (binding.py).

query   = and { "OR" and }
and     = unary { ["AND"] unary }
unary   = ("NOT" | "-") unary | primary
primary = "(" query ")" | "has" ":" WORD | WORD ":" [op] value | value
value   = WORD | STRING        op = "=" | ">" | ">=" | "<" | "<="
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal, NamedTuple, cast

from msgspec import Struct

from strandline.query.errors import BadQuery

Operator = Literal["=", ">", ">=", "<", "<="]

#: How deep a query may nest. A tree is walked by recursion, and a query written by hand is never this deep.
MAX_DEPTH = 64
#: How many clauses a query may have, so that the work per record stays bounded.
MAX_CLAUSES = 1024


class And(Struct, frozen=True):
    children: tuple[Node, ...]


class Or(Struct, frozen=True):
    children: tuple[Node, ...]


class Not(Struct, frozen=True):
    child: Node


class Has(Struct, frozen=True):
    """``has:field``"""

    field: str


class Compare(Struct, frozen=True):
    """``field:value`` (an "=") or a comparison such as ``field:>value``; ``quoted`` if the value was a string in
    quotes."""

    field: str
    op: Operator
    value: str
    quoted: bool


class Bare(Struct, frozen=True):
    """A value without a field."""

    value: str
    quoted: bool


Node = And | Or | Not | Has | Compare | Bare


class Token(NamedTuple):
    #: "word", "string", "end", or the sign itself: ( ) : - = > >= < <=
    kind: str
    text: str


TOKEN = re.compile(
    r"""(?P<space>\s+)
      | (?P<sign>>=|<=|[():=<>-])
      | "(?P<string>(?:[^"\\]|\\.)*)"
      | (?P<open>")
      | (?P<word>[^\s():<>=]+)""",
    re.VERBOSE | re.DOTALL,
)
ESCAPED = re.compile(r"\\(.)", re.DOTALL)
END = Token("end", "")


def tokenise(text: str) -> list[Token]:
    """Return the tokens of ``text``, followed by an "end". A dash is an operator only at the start of a token."""
    tokens: list[Token] = []
    for match in TOKEN.finditer(text):
        kind, found = match.lastgroup, match.group()
        if kind == "string":
            tokens.append(Token("string", ESCAPED.sub(r"\1", match["string"])))
        elif kind == "open":
            raise BadQuery("unterminated quoted string in query")
        elif kind == "sign":
            tokens.append(Token(found, found))
        elif kind == "word":
            tokens.append(Token("word", found))
    tokens.append(END)
    return tokens


def parse(text: str, name: str = "q") -> Node:
    """Return the tree of a query. ``name`` is its name in messages. Raises BadQuery."""
    if not text.strip():
        raise BadQuery(f"{name} must not be empty")
    return Parser(tokenise(text)).query()


class Parser:
    """One pass over the tokens of one query, a method per rule of the grammar."""

    def __init__(self, tokens: list[Token]) -> None:
        self.tokens = tokens
        self.place = 0
        self.depth = 0
        self.clauses = 0

    def query(self) -> Node:
        node = self.any_of()
        if self.token.kind != "end":
            raise BadQuery(f"unexpected {self.token.text!r} in query")
        return node

    @property
    def token(self) -> Token:
        return self.tokens[self.place]

    def advance(self) -> Token:
        token = self.tokens[self.place]
        self.place += 1
        return token

    def at_keyword(self, keyword: str) -> bool:
        return self.token.kind == "word" and self.token.text.upper() == keyword

    def deeper(self, rule: Callable[[], Node]) -> Node:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise BadQuery(f"query is nested more than {MAX_DEPTH} deep")
        node = rule()
        self.depth -= 1
        return node

    def any_of(self) -> Node:
        children = [self.all_of()]
        while self.at_keyword("OR"):
            self.advance()
            children.append(self.all_of())
        return children[0] if len(children) == 1 else Or(tuple(children))

    def all_of(self) -> Node:
        children = [self.unary()]
        while self.token.kind not in ("end", ")") and not self.at_keyword("OR"):
            if self.at_keyword("AND"):
                self.advance()
            children.append(self.unary())
        return children[0] if len(children) == 1 else And(tuple(children))

    def unary(self) -> Node:
        if self.token.kind == "-" or self.at_keyword("NOT"):
            self.advance()
            return Not(self.deeper(self.unary))
        return self.primary()

    def primary(self) -> Node:
        if self.token.kind == "(":
            self.advance()
            node = self.deeper(self.any_of)
            if self.advance().kind != ")":
                raise BadQuery("missing ) in query")
            return node
        self.clauses += 1
        if self.clauses > MAX_CLAUSES:
            raise BadQuery(f"query has more than {MAX_CLAUSES} clauses")
        return self.clause()

    def clause(self) -> Node:
        if self.at_keyword("AND") or self.at_keyword("OR"):
            raise BadQuery(f"unexpected {self.token.text!r} in query")
        first = self.value()
        if self.token.kind != ":":
            return Bare(first.text, first.kind == "string")
        if first.kind == "string":
            raise BadQuery("a field name must not be quoted")
        self.advance()
        if first.text == "has":
            return self.has()
        op = self.advance().kind if self.token.kind in ("=", ">", ">=", "<", "<=") else "="
        value = self.value()
        if self.token.kind == ":":
            raise BadQuery("unexpected ':' in query: quote a value that contains one")
        return Compare(first.text, cast(Operator, op), value.text, value.kind == "string")

    def has(self) -> Node:
        if self.token.kind != "word":
            raise BadQuery("has: requires a field name")
        return Has(self.advance().text)

    def value(self) -> Token:
        token = self.token
        if token.kind not in ("word", "string"):
            what = "the end" if token.kind == "end" else repr(token.text)
            raise BadQuery(f"expected a value in query, found {what}")
        return self.advance()
