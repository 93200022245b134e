"""Writes flows/decisions/diagnosis/literals.json: the words that patterns of lines want, read off the patterns."""

from __future__ import annotations

import json

from flows.decisions.diagnosis.diagnose import diagnose
from flows.decisions.diagnosis.literals import digest, read_literals
from flows.decisions.diagnosis.matching import RULES
from flows.decisions.diagnosis.prefilter import CUES


def literals() -> str:
    """The file, a line for each pattern."""
    assert diagnose, "all cues are known once all that diagnoses is imported"
    patterns = {rule.pattern for rule in RULES} | {one.pattern for cue in CUES if cue.read_off for one in cue.patterns}
    rows = sorted((digest(pattern), json.dumps(read_literals(pattern), ensure_ascii=False)) for pattern in patterns)
    return "{\n" + ",\n".join(f'"{key}": {words}' for key, words in rows) + "\n}\n"
