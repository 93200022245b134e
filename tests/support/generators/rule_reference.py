"""Writes the generated part of docs/rules.md: every rule of the rulebook, by class."""

from __future__ import annotations

from flows.decisions.diagnosis.clues import Rule
from flows.decisions.diagnosis.matching import RULES
from profiles.vocabulary import FaultClass

BEGIN = "<!-- generated from the rulebook by `make golden`: do not edit below -->"
END = "<!-- end of the generated part -->"
HEAD = (
    "| rule | weight | blames | vendor | matches, for example | source | makes superfluous |\n"
    "|---|---|---|---|---|---|---|"
)


def reference() -> str:
    """The generated part, without its markers."""
    parts = [f"{len(RULES)} rules."]
    for kind in FaultClass:
        rows = [row(rule) for rule in sorted(RULES, key=lambda rule: rule.name) if rule.fault_class is kind]
        if rows:
            parts.append(f"## `{kind.value}`\n\n{HEAD}\n" + "\n".join(rows))
    return "\n\n".join(parts)


def row(rule: Rule) -> str:
    """One rule as a row of the table."""
    name = f"`{rule.name}`"
    if rule.echo:
        name += " (echo)"
    if rule.fallback:
        name += " (if no other)"
    if rule.origins:
        name += f" (only in: {', '.join(rule.origins)})"
    superseded = ", ".join(f"`{word}`" for word in rule.supersedes)
    cells = (name, f"{rule.weight:g}", rule.blames, rule.vendor, code(rule.example), plain(rule.source), superseded)
    return f"| {' | '.join(cells)} |"


def code(text: str) -> str:
    """A text as it is, in a cell of a table."""
    fence = "``" if "`" in text else "`"
    space = " " if fence == "``" else ""
    return f"{fence}{space}{plain(text)}{space}{fence}"


def plain(text: str) -> str:
    """A text that neither ends the cell nor steers a terminal nor looks like a link."""
    shown = "".join(character if character.isprintable() else f"\\x{ord(character):02x}" for character in text)
    return shown.replace("|", "\\|").replace("](", "] (")
