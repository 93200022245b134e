"""What is wanted of checkpoints: where they are, how a restart is told, how a save is asked for."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import model_validator

from profiles.values import Count, PositiveCount, Value, wrong

CheckpointFormat = Literal["auto", "primus", "dcp", "megatron", "huggingface", "pattern", "none"]


def check_pattern(field: str, pattern: str, needs_group: str = "") -> None:
    """Nothing, or the error of a validator where `pattern` is no regular expression or lacks a group."""
    try:
        groups = re.compile(pattern).groupindex
    except (re.error, OverflowError, RecursionError) as error:
        raise wrong(field, f"is no regular expression: {error}") from error
    if pattern and needs_group and needs_group not in groups:
        raise wrong(field, f"must have a group called {needs_group}, e.g. (?P<{needs_group}>\\d+)")


class CheckpointPolicy(Value):
    """Where checkpoints are and how a restart is told."""

    directory: str = "{run_dir}/checkpoints"
    """Folder as pods see it, on shared storage. Placeholders: `{run_dir}`, `{run}`."""
    format: CheckpointFormat = "auto"
    """What writes them; `auto` recognises by content; `none`: the program keeps no checkpoints."""
    pattern: str = ""
    """For `pattern`: regular expression on the file name with a group `step`; without the group, one file that is
    overwritten in place (its step is then the last one reported before it was written)."""
    interval_steps: Count = 0
    """Steps between checkpoints as the program is told; 0: not known. `{interval_steps}` in commands."""
    follow_advice: bool = False
    """Tell a further attempt the interval at which least is lost, by the measured stall of a save and the believed time
    between failures, within a quarter and four times of `interval_steps`. Needs `{interval_steps}` in a command."""
    keep: PositiveCount = 3
    """Usable checkpoints to keep at least; the newest two are never deleted. We delete only what we copied."""
    resume_argument: tuple[str, ...] = ()
    """Added to the command when there is something to resume, e.g. `("--resume", "{resume_from}")`.
    Placeholders: `{resume_from}`, `{resume_step}`, `{remaining_steps}`."""
    first_step_after_resume: Literal["next", "same", "any"] = "next"
    """First step seen after a resume: checkpoint step + 1, + 0, or not to be judged."""
    counter_restarts: bool = False
    """The program's step counter starts from its beginning again after a resume; then first step = offset + counter."""
    keep_overwritten: bool = True
    """Keep a hard link or copy of a proven checkpoint that the program overwrites in place."""
    bit_equal: bool = False
    """A resumed run ends with exactly the weights of an unfailed one."""
    save_signal: Literal["TERM", "USR1", "USR2", "HUP", "INT"] = "TERM"
    """Asks the program to save before it must go. After TERM it ends by itself; after any other it may go on, and gets
    TERM once the save was seen complete, or when the notice is nearly over."""
    save_file: str = ""
    """File as pods see it that is made to ask for a save, and removed when it was seen and before ranks start; with it
    TERM only ends. Placeholders: `{run_dir}`, `{run}`. Empty: none."""

    @model_validator(mode="after")
    def _pattern_is_there(self) -> CheckpointPolicy:
        if (self.format == "pattern") != bool(self.pattern):
            raise wrong("pattern", "must be given exactly where format is `pattern`")
        check_pattern("pattern", self.pattern)
        if self.follow_advice and not self.interval_steps:
            raise wrong("follow_advice", "needs interval_steps, the interval to begin with")
        if self.save_file and not self.save_file.startswith(("/", "{run_dir}/")):
            raise wrong("save_file", "must be an absolute path or start with {run_dir}/")
        if self.save_file.endswith("/"):
            raise wrong("save_file", "must be the path of a file, not of a folder")
        return self
