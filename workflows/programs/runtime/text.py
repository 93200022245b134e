"""What others wrote, as a terminal or a page may show it: what is neither text nor a colour is replaced."""

from __future__ import annotations

import re

INSTEAD = "\ufffd"
_ACTS = (
    # Controls but tab and line feed, those of the second block too: terminals obey U+009B as they obey ESC [.
    "\x00-\x08\x0b-\x1a\x1c-\x1f\x7f-\x9f"
    # What ends a line or turns its direction where nobody expects it, and halves of characters.
    "\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff"
)
_OTHER_ESCAPE = "\x1b(?!\\[[0-9;:]*m)"
_NO_TEXT = re.compile(f"{_OTHER_ESCAPE}|[{_ACTS}]")
_OTHER_ESCAPE_BYTES = re.compile(_OTHER_ESCAPE.encode())
_CONTROL_BYTES = bytes(sorted({*range(32), 127} - set(b"\t\n\x1b")))
_COLOUR = re.compile("\x1b\\[[0-9;:]*m")
_LINE_ENDS = re.compile("\r+(?=\n|\\Z)")


def visible(text: str) -> str:
    """The text with its colours and lines; everything else that a terminal would obey is replaced."""
    if text.isprintable():
        return text
    return _NO_TEXT.sub(INSTEAD, _LINE_ENDS.sub("", text) if "\r" in text else text)


def uncoloured(text: str) -> str:
    """The same without colours, for what knows no terminal's colours."""
    return visible(_COLOUR.sub("", text) if "\x1b" in text else text)


def with_colours_ended(line: str) -> str:
    """The line, its colours ended where it does not do so itself."""
    colours = _COLOUR.findall(line) if "\x1b" in line else ()
    return f"{line}\x1b[0m" if colours and colours[-1] not in ("\x1b[m", "\x1b[0m") else line


def is_visible(block: bytes) -> bool:
    """Whether `visible` would leave these lines as they are."""
    if not block.isascii() or len(block.translate(None, _CONTROL_BYTES)) != len(block):
        return False
    return b"\x1b" not in block or _OTHER_ESCAPE_BYTES.search(block) is None
