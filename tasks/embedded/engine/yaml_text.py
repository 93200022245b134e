"""The YAML of resource manifests: mappings, lists, texts; block and flow style. The standard library has no YAML.

Manifests in a Workflow are texts, and the process that runs them does without third-party packages. Read is what people
and `yaml.dump` write for Kubernetes; anchors, tags, complex keys and several documents are refused by name.
"""

from __future__ import annotations

import re
from typing import Any

from tasks.embedded.engine.yaml_scalars import DOUBLE, SINGLE, block_text, double_quoted, fold, plain, single_quoted

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
