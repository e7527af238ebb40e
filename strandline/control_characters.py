"""Make control characters in untrusted text visible before the text reaches a terminal or a log file.

A terminal executes escape sequences: they move the cursor, change the title or write to the clipboard. A carriage
return overwrites a line. A line break in a log file forges a log line. Bidirectional controls display text in a
different order.
"""

from __future__ import annotations

_C0 = range(0x20)
_DELETE_AND_C1 = range(0x7F, 0xA0)
#: Bidirectional marks, embeddings, overrides and isolates, and the Unicode line breaks.
_BIDIRECTIONAL = (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_LINE_BREAKS = (0x2028, 0x2029)

_SHORT = {0x08: "\\b", 0x09: "\\t", 0x0A: "\\n", 0x0C: "\\f", 0x0D: "\\r"}
#: The escapes are those of JSON, so that escaping a JSON text does not change its meaning.
_ESCAPES = {
    code: _SHORT.get(code, f"\\u{code:04x}") for code in (*_C0, *_DELETE_AND_C1, *_BIDIRECTIONAL, *_LINE_BREAKS)
}
#: Text may contain line breaks and tabs, so these are not escaped.
_IN_TEXT = {code: escape for code, escape in _ESCAPES.items() if code not in (0x09, 0x0A)}


def visible(text: str) -> str:
    """Return the text with every control character escaped, except line breaks and tabs."""
    return text.translate(_IN_TEXT)


def visible_line(text: str) -> str:
    """Return the text as one line, with every control character escaped."""
    return text.translate(_ESCAPES)
