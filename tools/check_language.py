"""Finds phrases that make texts hard to read.

It checks the documents, the docstrings, comments and strings of the Python code, and the texts of the console and of
the browser module. A finding is printed as ``file:line: 'phrase': what to write instead``. To accept a line as it is,
put the comment ``language: ok`` at its end.

Run it from the root of the project. File names as arguments restrict it to these files.
"""

from __future__ import annotations

import io
import re
import subprocess
import sys
import tokenize
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path

#: Each phrase, as a regular expression, and what to write instead.
PHRASES = {
    r"whoever": "name who acts: the client, the reader, the server",
    r"nobody": "name who does not act, or use the passive",
    r"anew": "again, from the start",
    r"so many": "the number: at most N",
    r"so long(?! as)": "the time: for N seconds",
    r"behind (?:an?|the|that|this|its|each|every) (?:seq|sequence number|cursor|offset|record|position|end)": "after",
    r"(?:is|are|was|were|be|being) told": "name who gets which answer",
    r"(?:is|are|was|were|be) asked": "name who asks whom",
    r"goes? on": "continues",
    r"goes? with": "name the relation: is combined with, is deleted with",
    r"for good": "permanently",
    r"at hand": "available",
    r"on the side": "name where",
    r"brings? along": "includes, contains",
    r"(?<!there )(?:is|are|was) no (?!longer)[a-z]+(?=[.:;,!?'\"`)]|$)": "is not a …",
    r"makes? no sense": "say what is wrong",
    r"of all that": "name the things",
    r"what there is": "name the things",
    r"which there is not": "unknown …",
    r"there (?:is|are) not": "… does not exist",
    r"the same of": "name the things",
    r"one's own": "its own, your own",
    r"(?:is|are|too|very|quite) dear": "expensive",
    r"gives? up on|given up|gave up": "say what happens: is dropped, becomes a dead letter",
    r"that which": "what, or the noun",
}
_PATTERN = re.compile("|".join(rf"(?P<p{i}>\b{phrase}\b)" for i, phrase in enumerate(PHRASES)), re.IGNORECASE)
_ADVICE = list(PHRASES.values())
_OK = "language: ok"

#: Files that consist of text, in contrast to Python files.
_PROSE = {".md", ".html", ".js", ".css", ".toml", ".txt"}
#: The files to check, as patterns of ``git ls-files``, without texts by other authors.
_CHECKED = ("*.md", "strandline", "clients", "docs", "examples", "bench/*.py", "tools/*.py", "pyspark_strandline")
_NOT_CHECKED = re.compile(r"/vendor/|LICENSE|^tools/check_language\.py$|\.lock$|\.svg$")


def findings(path: Path) -> Iterator[tuple[int, str, str]]:
    """The line, the phrase and the advice of each finding in a file."""
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    for first, part in _python_texts(text) if path.suffix == ".py" else [(1, text)]:
        joined, starts = _joined(part)
        for match in _PATTERN.finditer(joined):
            line = first + bisect_right(starts, match.start()) - 1
            if _OK not in lines[line - 1]:
                assert match.lastgroup is not None
                yield line, match.group(), _ADVICE[int(match.lastgroup[1:])]


def _joined(text: str) -> tuple[str, list[int]]:
    """The text as one line, because sentences can span lines, and the offset of each of its lines."""
    parts, starts, length = [], [], 0
    for number, line in enumerate(text.split("\n")):
        part = line if number == 0 else " " + line.lstrip(" \t#>*-")
        starts.append(length)
        parts.append(part)
        length += len(part)
    return "".join(parts), starts


def _python_texts(text: str) -> Iterator[tuple[int, str]]:
    """Strings and blocks of comment lines, each with the number of its first line."""
    comment: list[str] = []
    begun = last = 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and token.line.strip().startswith("#"):
            if comment and token.start[0] == last + 1:
                comment.append(token.string)
            else:
                if comment:
                    yield begun, "\n".join(comment)
                comment, begun = [token.string], token.start[0]
            last = token.start[0]
        elif token.type == tokenize.COMMENT or token.type == tokenize.STRING:
            yield token.start[0], token.string
    if comment:
        yield begun, "\n".join(comment)


def main(arguments: list[str]) -> int:
    if not arguments:
        listed = subprocess.run(["git", "ls-files", "-z", *_CHECKED], capture_output=True, check=True, text=True).stdout
        arguments = [name for name in listed.split("\0") if name and not _NOT_CHECKED.search(name)]
    paths = [Path(name) for name in arguments]
    count = 0
    for path in sorted(paths):
        if path.exists() and (path.suffix == ".py" or path.suffix in _PROSE):
            for line, phrase, advice in findings(path):
                count += 1
                print(f"{path}:{line}: {phrase!r}: {advice}")
    if count:
        print(f"{count} phrases to rewrite from their meaning", file=sys.stderr)
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
