"""Control characters in text that others wrote: made visible before a terminal or a log file gets them.

A terminal acts on escape sequences: they move the cursor, change the title, write to the clipboard. A carriage return
overwrites a line, a line break in a log file begins a line that nobody logged, and bidirectional controls show text in
another order than it is in.
"""

from __future__ import annotations

_C0 = range(0x20)
_DELETE_AND_C1 = range(0x7F, 0xA0)
#: Marks, embeddings, overrides and isolates; and the line breaks of Unicode.
_BIDIRECTIONAL = (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_LINE_BREAKS = (0x2028, 0x2029)

_SHORT = {0x08: "\\b", 0x09: "\\t", 0x0A: "\\n", 0x0C: "\\f", 0x0D: "\\r"}
#: As JSON writes them, so that JSON stays JSON with the same meaning.
_ESCAPES = {
    code: _SHORT.get(code, f"\\u{code:04x}") for code in (*_C0, *_DELETE_AND_C1, *_BIDIRECTIONAL, *_LINE_BREAKS)
}
#: Lines and tabs are what text is made of.
_IN_TEXT = {code: escape for code, escape in _ESCAPES.items() if code not in (0x09, 0x0A)}


def visible(text: str) -> str:
    """The text with every control character escaped but line breaks and tabs."""
    return text.translate(_IN_TEXT)


def visible_line(text: str) -> str:
    """The text as one line, with every control character escaped."""
    return text.translate(_ESCAPES)
