"""Events in words: one line for a message, and the command to answer with. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from workflows.console import Json

EVIDENCE_LINES = 10
EVIDENCE_CHARACTERS = 500
"""What an event repeats of an incident's evidence; `primus status` has all of it."""
_COMMANDS: Mapping[str, str] = {
    "primus.approval.asked": 'primus approve {id} --why "..."',
    "primus.run.failed": 'primus resume {run} --why "..."',
    "primus.run.stopped": 'primus resume {run} --why "..."',
    "primus.run.paused": "primus unpause {run}",
    "primus.automation.paused": "primus unpause --all",
    "primus.run.succeeded": "primus report {run}",
    "primus.run.waiting": "primus why {run}",
    "primus.finding.opened": "primus monitor --once --cluster {cluster}",
    "primus.run.throughput_fell": "primus logs {run}",
}


def command_of(name: str, payload: Json) -> str:
    """What a person types who has read the event."""
    fallback = "primus status {run}" if payload["run"] else "primus nodes {node}" if payload["node"] else "primus runs"
    return _COMMANDS.get(name, fallback).format_map(payload)


def message_of(name: str, payload: Json) -> str:
    """The event as one line: about whom, what, who is to blame, what is done, why."""
    about = payload["run"] or payload["node"] or payload["cluster"] or "everything"
    return f"{about}: {_sentence(name.removeprefix('primus.'), payload)}"


def _sentence(what: str, payload: Json) -> str:
    subject, _, verb = what.partition(".")
    if subject == "incident":
        return _of_incident(verb, payload)
    said = {
        "approval.asked": "waits for an answer: {question}",
        "approval.answered": "{by} answered, {state}: {why}",
        "approval.expired": "nobody answered in time: {question}",
        "run.throughput_fell": "steps take {ratio} times as long since step {step} of attempt {attempt}",
        "run.succeeded": "succeeded: {why}",
        "run.failed": "failed: {why}",
        "run.stopped": "stopped: {why}",
        "finding.opened": "{subject}: {why}; {action}",
        "verdict.given": "{node} was tested, {state}: {why}",
        "attempt.ended": "attempt {attempt} ended, {outcome}, at step {step}",
    }
    if what in said:
        return said[what].format_map(payload)
    if subject == "attempt":
        return f"attempt {payload['attempt']} is {verb}"
    if subject == "action":
        return f"{payload['action']} {payload['node']} {verb}: {payload['why']}".replace("  ", " ")
    return f"{subject} {verb.replace('_', ' ')}: {payload['why']}"


def _of_incident(verb: str, payload: Json) -> str:
    if verb == "opened":
        return f"attempt {payload['attempt']}: {payload['signal']}: {payload['why']}"
    if verb == "told":
        return f"{payload['class']}: {payload['why']}"
    if verb == "over":
        return f"{payload['signal']} is over: {next(iter(payload['evidence']), payload['class'])}"
    blamed = ", ".join(blame(item) for item in payload["culprits"]) or "nobody"
    known = f"{payload['class']} ({payload['confidence'] or 0.0:.2f}), blamed: {blamed}"
    return known if verb == "diagnosed" else f"{known}; {payload['action']}: {payload['why']}"


def blame(culprit: Mapping[str, object]) -> str:
    """A culprit: node, rank, or both."""
    rank = "" if culprit["rank"] is None else f"rank {culprit['rank']}"
    return f"{culprit['node']} ({rank})" if culprit["node"] and rank else str(culprit["node"] or rank)
