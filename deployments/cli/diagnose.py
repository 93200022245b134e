"""`primus diagnose`: what log files say of a failure, for people and as JSON; needs no server and no cluster."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from io import StringIO
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from deployments.cli.app import AsJson, app
from deployments.exit_codes import GOOD, UNKNOWN, out, out_json, say
from flows.decisions.diagnosis.clues import Clue
from flows.decisions.diagnosis.diagnose import Diagnosis
from flows.decisions.diagnosis.diagnose import diagnose as diagnosis_of
from flows.decisions.diagnosis.matching import rule_by_name
from flows.decisions.diagnosis.selection import Selection, evidence_from, select, select_all
from flows.decisions.diagnosis.significance import SignificanceIndex
from flows.decisions.diagnosis.skim import Learning
from flows.decisions.policy import FaultPolicy, policy_of
from profiles.vocabulary import FaultClass
from tasks.log_files import LogFile, find_logs
from workflows.programs.runtime.text import uncoloured

_STYLES = {FaultClass.NONE: "bold green", FaultClass.UNKNOWN: "bold yellow"}
_SHOWN_OTHERS = 4

PROVISIONAL_BYTES = 2 << 20
"""The ends of all logs that a first answer is made from; logs that are no longer have none."""
PROVISIONAL_LINES = 1200
PROVISIONAL_CHATTER = 10


@app.command()
def diagnose(
    logs: Annotated[list[str], typer.Argument(help="Log files of any program, folders of them, - for standard input.")],
    as_json: AsJson = False,
) -> int:
    """What any log files say: class of the failure, who is to blame, the lines that tell it, what to do.

    Several ranks, kernel logs and events may be named together; .gz, .bz2 and .xz are read as they are.
    Exit code 0: an answer was given, whatever it says; 2: a named file cannot be read; 3: there was nothing to read.

    Example: primus diagnose rank-*.log dmesg-node-7.txt
    """
    return diagnose_logs(logs, as_json=as_json)


def document(found: Diagnosis, selections: Sequence[Selection]) -> dict[str, Any]:
    """The document of `primus diagnose --json`."""
    policy = policy_of(found.fault_class, found.rule)
    return {
        "class": str(found.fault_class),
        "confidence": found.confidence,
        "alternatives": [{"class": str(kind), "confidence": share} for kind, share in found.alternatives],
        "culprits": [{"rank": rank, "node": node or None} for node, rank in found.culprits],
        "victims": list(found.victims),
        "evidence": [_evidence(clue) for clue in found.evidence],
        "action": str(policy.action),
        "retry_helps": found.retry_helps,
        "node_suspect": found.node_suspect,
        "why": _why(found),
        "advice": found.advice,
        "first_failing_rank": found.first_failing_rank,
        "step": found.step,
        "logs": [
            {"file": item.name, "lines": item.lines, "bytes": item.size_bytes, "kept": item.kept} for item in selections
        ],
    }


def _evidence(clue: Clue) -> dict[str, Any]:
    return {
        "file": clue.file or None,
        "line": clue.line or None,
        "text": clue.text,
        "rule": clue.rule,
        "class": str(clue.fault_class),
        "rank": clue.rank,
        "node": clue.node or None,
    }


def show(found: Diagnosis, selections: Sequence[Selection]) -> None:
    """Print the diagnosis; with colours on a terminal only."""
    text = StringIO()  # rich would end the program by itself where nobody reads any more
    console = Console(file=text, force_terminal=sys.stdout.isatty(), highlight=False, soft_wrap=True)
    for line in lines_of(found, selections):
        console.print(line)
    out(text.getvalue())


def lines_of(found: Diagnosis, selections: Sequence[Selection]) -> list[Text]:
    """The answer first, then what it stands on, then what else it could be."""
    policy = policy_of(found.fault_class, found.rule)
    lines = [
        Text.assemble(
            (str(found.fault_class), _STYLES.get(found.fault_class, "bold red")),
            f"  (confidence {found.confidence:.2f})",
        )
    ]
    for name, text in (
        ("blamed", _blamed(found) or ("" if found.fault_class in (FaultClass.NONE, FaultClass.UNKNOWN) else "nobody")),
        ("first", _first(found)),
        ("do", _do(found, policy)),
        ("advice", found.advice),
        ("why", "" if found.evidence else _why(found)),
    ):
        lines += [Text.assemble((f"  {name:<8}", "dim"), _clean(text))] if text else []
    own = [clue for clue in found.evidence if clue.fault_class is found.fault_class]
    others = [clue for clue in found.evidence if clue.fault_class is not found.fault_class]
    lines += _block("evidence", [_clue_text(clue) for clue in own])
    lines += _block("also seen, and judged to matter less", [_clue_text(clue, True) for clue in others[:_SHOWN_OTHERS]])
    if found.alternatives:
        shares = ", ".join(f"{kind} {share:.2f}" for kind, share in found.alternatives if share >= 0.005)
        lines += [Text(), Text(f"otherwise: {shares}")] if shares else []
    if found.victims:
        lines.append(Text(f"only suffered: {_ranks(found.victims)}"))
    size, count = sum(item.size_bytes for item in selections), sum(item.lines for item in selections)
    files = f"{len(selections)} {'file' if len(selections) == 1 else 'files'}"
    lines += [Text(), Text(f"read {files}, {count:,} {'line' if count == 1 else 'lines'}, {size / 1e6:.1f} MB", "dim")]
    return lines


def _block(title: str, rows: Iterable[Text]) -> list[Text]:
    listed = list(rows)
    return [Text(), Text(title, "bold"), *listed] if listed else []


def _clue_text(clue: Clue, with_class: bool = False) -> Text:
    """`file:line: text [rule]`, what the rule matched standing out."""
    place = f"{clue.file}:{clue.line}: " if clue.file and clue.line else (f"{clue.file}: " if clue.file else "")
    text, rule = Text(_clean(clue.text.strip())), rule_by_name(clue.rule)
    hit = rule.regex.search(text.plain) if rule is not None else None
    if hit is not None:
        text.stylize("bold red", *hit.span())
    name = f"  [{f'{clue.fault_class}: ' if with_class else ''}{clue.rule}]"
    return Text.assemble("  ", (_clean(place), "cyan"), text, (name, "dim"))


def _why(found: Diagnosis) -> str:
    return "nothing in these lines speaks of a failure" if found.fault_class is FaultClass.NONE else found.why


def _first(found: Diagnosis) -> str:
    """Who failed first, where blame does not say so."""
    rank = found.first_failing_rank
    return "" if rank is None or any(rank == one for _, one in found.culprits) else f"rank {rank} failed first"


def _blamed(found: Diagnosis) -> str:
    whole = [node for node, rank in found.culprits if rank is None]
    placed = [f"rank {rank} on {node}" for node, rank in found.culprits if rank is not None and node]
    ranks = [rank for node, rank in found.culprits if rank is not None and not node]
    return ", ".join([*whole, *placed, *([_ranks(ranks)] if ranks else [])])


def _do(found: Diagnosis, policy: FaultPolicy) -> str:
    if found.fault_class is FaultClass.NONE:
        return "nothing"
    chance = "has a fair chance" if found.retry_helps else "would not help"
    again = f"a restart without any change {chance}"
    suspect = ", ".join(dict.fromkeys(node for node, _ in found.culprits if node)) if found.node_suspect else ""
    node = {
        "quarantine": f"; keep pods off {suspect} until it was tested",
        "quarantine-again": f"; avoid {suspect}, and keep pods off it if it happens there again",
        "none": f"; {suspect} is suspect",
    }[policy.nodes]
    return f"{policy.action}: {again}{node if suspect else ''}"


def _ranks(ranks: Iterable[int]) -> str:
    """`ranks 0-6, 9`."""
    spans: list[list[int]] = []
    for rank in sorted(ranks):
        if spans and rank == spans[-1][1] + 1:
            spans[-1][1] = rank
        else:
            spans.append([rank, rank])
    text = ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)
    return f"{'ranks' if len(spans) > 1 or any(first != last for first, last in spans) else 'rank'} {text}"


def _clean(text: str) -> str:
    return uncoloured(" ".join(re.split("[\t\n]", text)))


def diagnose_logs(names: Sequence[str], *, as_json: bool) -> int:
    """Read the logs and answer; 3 where there was nothing to read.

    Raises:
        NotFound: there is no such file.
        ProfileError: a named file cannot be read.
    """
    logs, passed = find_logs(names)
    for text in passed:
        say(f"primus: passed over: {text}")
    if sys.stderr.isatty():
        _say_first(logs)
    selections = select_all(logs)
    for log in logs:
        for text in log.broken:
            say(f"primus: {text}")
    found = diagnosis_of(evidence_from(selections))
    empty = not any(text.strip() for item in selections for _, texts in item.runs for text in texts)
    if as_json:
        out_json(document(found, selections))
    elif not empty:
        show(found, selections)
    if empty:
        say(f"primus: there was nothing to read in {', '.join(names)}")
    return UNKNOWN if empty else GOOD


def _say_first(logs: Sequence[LogFile]) -> None:
    """Print a first answer from the ends of the logs for people who wait while everything is read."""
    known = sum(log.size_bytes or 0 for log in logs)
    if known <= PROVISIONAL_BYTES:
        if any(log.path is None for log in logs) and sys.stdin.isatty():
            say("primus: reading standard input until its end (Ctrl-D)")
        return
    found = provisional(logs)
    blamed = ", ".join(node or f"rank {rank}" for node, rank in found.culprits[:4])
    say(
        f"from the ends of the logs: {found.fault_class} ({found.confidence:.2f})"
        f"{f', blamed: {blamed}' if blamed else ''}; reading all {known / 1e6:.0f} MB ..."
    )


def provisional(logs: Sequence[LogFile]) -> Diagnosis:
    """A diagnosis from the last megabytes of the logs; line numbers mean nothing in it."""
    learning, each = Learning(SignificanceIndex(PROVISIONAL_CHATTER)), PROVISIONAL_BYTES // max(1, len(logs))
    most = max(8, PROVISIONAL_LINES // max(1, len(logs)))
    ends: list[Selection] = [select(log.name, [log.tail(each)], learning, most) for log in logs]
    return diagnosis_of(evidence_from(ends))
