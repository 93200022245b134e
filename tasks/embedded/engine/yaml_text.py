"""The YAML of resource manifests: mappings, lists, texts; block and flow style.

Manifests in a Workflow are texts, and the process that runs them has no third-party packages. It reads what people and
`yaml.dump` write for Kubernetes; anchors, tags, complex keys and several documents are refused by name.
"""

from __future__ import annotations

import itertools
import re
from typing import Any

_NULL = frozenset(("", "~", "null", "Null", "NULL"))
_TRUE = frozenset(word for base in ("yes", "true", "on") for word in (base, base.capitalize(), base.upper()))
_FALSE = frozenset(word for base in ("no", "false", "off") for word in (base, base.capitalize(), base.upper()))
_WHOLE = re.compile(r"[-+]?(?:0x[0-9a-fA-F_]+|0b[01_]+|0[0-7_]*|[1-9][0-9_]*)")
_FLOAT = re.compile(r"[-+]?(?:[0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*)(?:[eE][-+][0-9]+)?")
_SPECIAL = {".inf": "inf", "+.inf": "inf", "-.inf": "-inf", ".nan": "nan"}
_FOLD = re.compile(r"[ \t]*\n[ \t]*((?:\n[ \t]*)*)")
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)", re.DOTALL)
_LETTERS = {
    "0": "\0",
    "a": "\a",
    "b": "\b",
    "t": "\t",
    "\t": "\t",
    "n": "\n",
    "v": "\v",
    "f": "\f",
    "r": "\r",
    "e": "\x1b",
    "N": "\x85",
    "_": "\xa0",
    "L": "\u2028",
    "P": "\u2029",
}
SINGLE = re.compile(r"'((?:[^']|'')*)'")
DOUBLE = re.compile(r'"((?:\\.|[^"\\])*)"', re.DOTALL)

Scalar = str | int | float | bool | None


def plain(text: str) -> Scalar:
    """The value of a word without quotes, by YAML 1.1's rules (as Kubernetes' own tools read it)."""
    if text in _NULL:
        return None
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    if _WHOLE.fullmatch(text):
        return _whole(text.replace("_", ""))
    if _FLOAT.fullmatch(text):
        return float(text.replace("_", ""))
    return float(_SPECIAL[text.lower()]) if text.lower() in _SPECIAL else text


def _whole(text: str) -> int:
    sign = -1 if text[0] == "-" else 1
    digits = text.lstrip("+-")
    base = {"0x": 16, "0b": 2}.get(digits[:2], 8 if digits[0] == "0" and len(digits) > 1 else 10)
    return sign * int(digits[2:] if base in (16, 2) else digits, base)


def fold(text: str) -> str:
    """Lines of a text joined as YAML does: one line break is a blank, further ones stay."""
    return _FOLD.sub(lambda found: "\n" * found[1].count("\n") or " ", text) if "\n" in text else text


def single_quoted(inner: str) -> str:
    """The text between single quotes."""
    return fold(inner).replace("''", "'")


def double_quoted(inner: str) -> str:
    """The text between double quotes."""
    joined = re.sub(r"((?:^|[^\\])(?:\\\\)*)\\[ \t]*\n[ \t]*", r"\1", inner)
    return _ESCAPE.sub(_unescaped, fold(joined))


def _unescaped(found: re.Match[str]) -> str:
    text = found[1]
    if len(text) > 1:
        return chr(int(text[1:], 16))
    return _LETTERS.get(text, text)


def block_text(lines: list[str], folded: bool, chomp: str) -> str:
    """A `|` or `>` text.

    Args:
        lines: its lines without their common indentation.
        folded: `>`: lines become one, except blank and deeper ones.
        chomp: "" keeps one line break at the end, "-" none, "+" all.
    """
    trailing = 0
    while lines and not lines[-1]:
        lines = lines[:-1]
        trailing += 1
    if not lines:
        return "\n" * trailing if chomp == "+" else ""
    body = _folded(lines) if folded else "\n".join(lines)
    return body + {"-": "", "+": "\n" * (trailing + 1)}.get(chomp, "\n")


def _folded(lines: list[str]) -> str:
    made = lines[0]
    breaks = 0
    for before, line in itertools.pairwise(lines):
        deep = line[:1] in (" ", "\t") or before[:1] in (" ", "\t")
        if not line:
            breaks += 1
            continue
        made += ("\n" * (breaks + 1) if deep else "\n" * breaks or " ") + line
        breaks = 0
    return made


_KEY = re.compile(
    r"(?P<key>[^\s#'\"\[\]{},&*!|>%@`-](?:[^:#]|:(?=\S)|(?<=\S)#)*?|-(?=\S)(?:[^:#]|:(?=\S)|(?<=\S)#)*?)\s*:(?:\s+|$)",
    re.ASCII,
)
_HEADER = re.compile(r"[|>](?:([-+])?([1-9])?|([1-9])([-+])?)\s*(?:#.*)?$")
_COMMENT = re.compile(r"(?:^|\s)#.*$", re.ASCII)
_DASH = re.compile(r"-(\s|$)", re.ASCII)
_COLON = re.compile(r"\s*:(?:\s+|$)", re.ASCII)
_FLOW_WORD = re.compile(r"(?:[^,\[\]{}:\n#]|:(?=[^\s,\[\]{}])|(?<=\S)#)+", re.ASCII)
_BLANKS = re.compile(r"(?:\s|(?<=\s)#[^\n]*)*", re.ASCII)
_REFUSED = {"&": "anchors", "*": "aliases", "!": "tags", "?": "complex keys", "%": "directives", "@": "@", "`": "`"}


class YamlError(ValueError):
    """A text is no YAML of the subset; says the line and why."""


def read_yaml(text: str) -> Any:
    """The value of a YAML document.

    Raises:
        YamlError: it cannot be read.
    """
    reader = _Reader(text)
    value = reader.document()
    return value


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text.replace("\r\n", "\n")
        self.lines = self.text.split("\n")
        self.starts = [0]
        for line in self.lines:
            self.starts.append(self.starts[-1] + len(line) + 1)
        self.at = 0

    def fail(self, why: str) -> YamlError:
        return YamlError(f"line {min(self.at, len(self.lines) - 1) + 1}: {why}")

    def document(self) -> Any:
        if self.skip() and self.lines[self.at].rstrip(" \t") == "---":
            self.at += 1
        value = self.block(0) if self.skip() else None
        if self.skip() and self.lines[self.at].rstrip(" \t") == "...":
            self.at += 1
        if self.skip():
            line = self.lines[self.at]
            raise self.fail("only one document is read" if line.startswith("---") else f"unexpected '{line.strip()}'")
        return value

    def skip(self) -> bool:
        """Go to the next line with content; whether there is one."""
        while self.at < len(self.lines):
            content = self.lines[self.at].strip(" \t")
            if content and not content.startswith("#"):
                return True
            self.at += 1
        return False

    def indent(self) -> int:
        line = self.lines[self.at]
        bare = line.lstrip(" ")
        if bare.startswith("\t"):
            raise self.fail("a tab cannot indent")
        return len(line) - len(bare)

    def block(self, least: int, parent: int | None = None) -> Any:
        """The value that starts at this line, indented by `least` at least; a scalar's parent stands at `parent`."""
        indent = self.indent()
        if indent < least:
            return None
        content = self.lines[self.at][indent:]
        if content == "-" or content.startswith("- "):
            return self.sequence(indent)
        if self.key_end(self.starts[self.at] + indent) is not None:
            return self.mapping(indent)
        return self.value(self.starts[self.at] + indent, indent - 1 if parent is None else parent)

    def sequence(self, indent: int) -> list[Any]:
        found: list[Any] = []
        while self.skip() and self.indent() == indent and _DASH.match(self.lines[self.at][indent:]):
            line = self.lines[self.at]
            rest = line[indent + 1 :]
            inner = indent + 1 + len(rest) - len(rest.lstrip(" "))
            if not _COMMENT.sub("", rest).strip(" \t"):
                self.at += 1
                found.append(self.block(indent + 1) if self.skip() else None)
                continue
            self.lines[self.at] = " " * inner + line[inner:]
            found.append(self.block(inner, indent))
        return found

    def mapping(self, indent: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while self.skip() and self.indent() == indent:
            parsed = self.key_end(self.starts[self.at] + indent)
            if parsed is None:
                break
            key, end = parsed
            if key in found:
                raise self.fail(f"the key '{key}' stands twice")
            found[key] = self.entry(end, indent)
        if self.at < len(self.lines) and self.indent() > indent:
            raise self.fail("this line is indented too far")
        return found

    def entry(self, offset: int, indent: int) -> Any:
        rest = _COMMENT.sub("", self.text[offset : self.starts[self.at + 1] - 1]).strip(" \t")
        if rest:
            return self.value(offset, indent)
        self.at += 1
        if not self.skip():
            return None
        inner = self.indent()
        if inner == indent and _DASH.match(self.lines[self.at][inner:]):
            return self.sequence(indent)
        return self.block(indent + 1) if inner > indent else None

    def key_end(self, offset: int) -> tuple[str, int] | None:
        """The key that starts here and where its value may start; None where no key starts here."""
        line_end = self.starts[self.at + 1] - 1
        for pattern, unquote in ((DOUBLE, double_quoted), (SINGLE, single_quoted)):
            quoted = pattern.match(self.text, offset, line_end)
            if quoted:
                after = _COLON.match(self.text[quoted.end() : line_end])
                return (unquote(quoted[1]), quoted.end() + after.end()) if after else None
        found = _KEY.match(self.text[offset:line_end])
        return (str(found["key"]), offset + found.end()) if found else None

    def value(self, offset: int, indent: int) -> Any:
        """The scalar or flow value at an offset of this line; continuation lines are indented beyond `indent`."""
        while self.text[offset] == " ":
            offset += 1
        first = self.text[offset]
        if first in "|>":
            return self.block_scalar(offset, indent)
        if first in "'\"[{":
            value, end = self.flow(offset)
            self.at = max(index for index, start in enumerate(self.starts) if start <= end and index < len(self.lines))
            rest = _COMMENT.sub("", self.text[end : self.starts[self.at + 1] - 1]).strip(" \t")
            if rest:
                raise self.fail(f"unexpected '{rest}'")
            self.at += 1
            return value
        self.check_start(first, self.text[offset + 1 : offset + 2])
        return self.plain_lines(offset, indent)

    def check_start(self, first: str, second: str) -> None:
        if first in _REFUSED and not (first == "?" and second not in (" ", "\n", "")):
            raise self.fail(f"{_REFUSED[first]} are not supported")
        if first in "]},":
            raise self.fail(f"unexpected '{first}'")

    def plain_lines(self, offset: int, indent: int) -> Any:
        parts = [_COMMENT.sub("", self.text[offset : self.starts[self.at + 1] - 1]).strip(" \t")]
        self.at += 1
        while self.at < len(self.lines):
            line = self.lines[self.at]
            bare = line.strip(" \t")
            if bare and (len(line) - len(line.lstrip(" ")) <= indent or bare.startswith("#")):
                break
            parts.append(_COMMENT.sub("", line).strip(" \t"))
            self.at += 1
        while not parts[-1]:
            parts.pop()
            self.at -= 1
        if any(re.search(r":(\s|$)", part, re.ASCII) for part in parts):
            raise self.fail(f"'{' '.join(parts)}' must stand in quotes: it has a colon")
        return plain(fold("\n".join(parts)))

    def block_scalar(self, offset: int, indent: int) -> str:
        header = _HEADER.match(self.text[offset : self.starts[self.at + 1] - 1])
        if header is None:
            raise self.fail("this is no beginning of a block text")
        given = header[2] or header[3]
        self.at += 1
        first = self.at
        while self.at < len(self.lines) and (
            not self.lines[self.at].strip(" \t") or self.lines[self.at].startswith(" " * (max(indent, -1) + 1))
        ):
            self.at += 1
        lines = self.lines[first : self.at]
        if self.at == len(self.lines) and lines and not lines[-1]:
            lines = lines[:-1]
        deepest = [len(line) - len(line.lstrip(" ")) for line in lines if line.strip(" \t")]
        width = max(indent, 0) + int(given) if given else (deepest[0] if deepest else 0)
        body = [line[width:] if line.strip(" \t") or len(line) > width else "" for line in lines]
        return block_text(body, self.text[offset] == ">", header[1] or header[4] or "")

    def flow(self, offset: int) -> tuple[Any, int]:
        """The quoted text, list or object at an offset, and the offset after it."""
        first = self.text[offset]
        for mark, pattern, unquote in (('"', DOUBLE, double_quoted), ("'", SINGLE, single_quoted)):
            if first == mark:
                quoted = pattern.match(self.text, offset)
                if quoted is None:
                    raise self.fail("a quote is not closed")
                return unquote(quoted[1]), quoted.end()
        if first == "[":
            return self.flow_list(offset + 1)
        if first == "{":
            return self.flow_map(offset + 1)
        found = _FLOW_WORD.match(self.text, offset)
        if found is None:
            raise self.fail(f"unexpected '{first}'")
        self.check_start(first, "")
        return plain(found[0].strip(" \t")), found.end()

    def blanks(self, offset: int) -> int:
        found = _BLANKS.match(self.text, offset)
        end = found.end() if found else offset
        if end >= len(self.text):
            raise self.fail("a bracket is not closed")
        return end

    def flow_list(self, offset: int) -> tuple[list[Any], int]:
        items: list[Any] = []
        while self.text[offset := self.blanks(offset)] != "]":
            value, offset = self.flow(offset)
            items.append(value)
            offset = self.separator(offset, "]")
        return items, offset + 1

    def flow_map(self, offset: int) -> tuple[dict[str, Any], int]:
        items: dict[str, Any] = {}
        while self.text[offset := self.blanks(offset)] != "}":
            key, offset = self.flow(offset)
            offset = self.blanks(offset)
            if self.text[offset] != ":":
                raise self.fail(f"expected ':' after '{key}'")
            offset = self.blanks(offset + 1)
            if self.text[offset] in ",}":
                items[str(key)] = None
            else:
                items[str(key)], offset = self.flow(offset)
            offset = self.separator(offset, "}")
        return items, offset + 1

    def separator(self, offset: int, closing: str) -> int:
        offset = self.blanks(offset)
        if self.text[offset] == ",":
            return offset + 1
        if self.text[offset] != closing:
            raise self.fail(f"expected ',' or '{closing}', found '{self.text[offset]}'")
        return offset
