"""`primus completion`: what a shell sources to complete commands, options, choices and names; and the tree it reads.

The parser's library has a generator of its own, which imports a command to complete its words: 0.7 to 2 s a key.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, get_args

import typer
from typer.core import TyperGroup
from typer.main import get_group

from deployments.cli.app import app
from deployments.cli.nodes import BY_HAND
from deployments.exit_codes import GOOD, write
from flows.decisions.views.fleet import FILTERS, GROUPS, Schedulability
from profiles.checks.catalogue import DEPTHS
from profiles.drill import KINDS
from profiles.errors import ProfileError
from profiles.loading.load import list_profiles
from profiles.run import Framework
from profiles.values import did_you_mean
from profiles.vocabulary import FaultClass, Mode, RunState, VerdictWord

Json = dict[str, Any]
BASH = r"""_primus() {
    local word
    COMPREPLY=()
    while IFS= read -r word; do
        if [[ $word == $'\t' ]]; then compopt -o default 2>/dev/null; else COMPREPLY+=("$word"); fi
    done < <("${1/#\~/$HOME}" __complete bash "${COMP_LINE:0:COMP_POINT}" 2>/dev/null)
    if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *[=:] ]]; then compopt -o nospace 2>/dev/null; fi
}
complete -F _primus primus
"""
ZSH = r"""#compdef primus
_primus() {
    local line
    local -a whole open
    while IFS= read -r line; do
        case $line in
            ($'\t') _files ;;
            (*[=:]) open+=("$line") ;;
            (*) whole+=("${line%%$'\t'*}") ;;
        esac
    done < <("${words[1]/#\~/$HOME}" __complete zsh "${(@)words[2,CURRENT]}" 2>/dev/null)
    compadd -a whole
    compadd -S '' -a open
}
compdef _primus primus
"""
FISH = r"""function __primus
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    for line in ($words[1] __complete fish $words[2..-1] "$current" 2>/dev/null)
        if test "$line" = \t
            __fish_complete_path "$current"
        else
            echo $line
        end
    end
end
complete -c primus -f -a '(__primus)'
"""
SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH}


@app.command()
def completion(shell: Annotated[str, typer.Argument(metavar="bash|zsh|fish", help="Whose words.")]) -> int:
    """Print what the shell sources to complete commands, options, choices, and names of runs and nodes.

    bash: eval "$(primus completion bash)" in ~/.bashrc; zsh: the same after compinit in ~/.zshrc; fish: primus
    completion fish >~/.config/fish/completions/primus.fish. Names come from the ledger, none where it does not answer.

    Example: primus completion bash
    """
    if shell not in SCRIPTS:
        raise ProfileError("SHELL", f"{shell!r} is unknown{did_you_mean(shell, SCRIPTS, 'shells')}")
    write(SCRIPTS[shell])
    return GOOD


OPTIONS = {
    "--cluster": "cluster", "--mode": "mode", "--suite": "suite", "--depth": "depth", "--launcher": "launcher",
    "--nodes": "nodes", "--only": "only", "--by": "by", "--class": "class", "--run": "run", "--fault": "fault",
    "--as": "form", "--part": "part", "--state": "state", "--trial": "profile", "--rank": "rank", "--html": "file",
    "--out": "file", "--values": "file", "--node": "node", "--like": "shipped",
    "--progress": "framework",
}  # fmt: skip
ARGUMENTS = {
    "run": "run", "run_or_path": "run-or-file", "profile": "profile", "node": "node", "approval": "approval",
    "file": "file", "files": "file", "logs": "file", "folder": "file", "shell": "shell",
}  # fmt: skip
OF_COMMANDS: Mapping[tuple[str, ...], str] = {
    ("runs", "words"): "runs", ("nodes", "words"): "nodes-or-act", ("profiles", "show", "profile"): "any-profile",
    ("clusters", "show", "name"): "cluster", ("render", "workspace", "profile"): "workspace",
}  # fmt: skip
"""Arguments that mean something else than their name does elsewhere."""


def kinds() -> Json:
    """What may stand for each kind of word: known words, names of the ledger, files; `list`: several, with commas."""
    shipped = {kind: [one.name for one in list_profiles() if one.kind == kind] for kind in ("run", "cluster", "suite")}
    anything = sorted({one.name for one in list_profiles()})
    workspaces = [one.name for one in list_profiles() if one.kind == "workspace"]
    closed = [f"state={word}" for word in Schedulability] + [f"verdict={word}" for word in VerdictWord]
    return {
        "any-profile": {"words": anything, "files": True},
        "approval": {"names": "approvals"},
        "by": {"words": list(GROUPS)},
        "class": {"words": list(FaultClass)},
        "cluster": {"words": shipped["cluster"], "files": True},
        "depth": {"words": list(DEPTHS)},
        "fault": {"words": [f"{name}:" if kind.target != "none" else name for name, kind in KINDS.items()]},
        "file": {"files": True},
        "form": {"words": ["jobset", "trainjob", "pytorchjob"]},
        "framework": {"words": [one for one in get_args(Framework) if one != "regex"]},
        "launcher": {"words": ["kubernetes", "ansible", "slurm"]},
        "mode": {"words": list(Mode)},
        "node": {"names": "nodes"},
        "nodes": {"names": "nodes", "list": True},
        "nodes-or-act": {"words": list(BY_HAND), "names": "nodes"},
        "only": {"words": [*closed, *(f"{field}=" for field in FILTERS if field not in ("state", "verdict"))]},
        "part": {"words": ["all", "check", "rules", "scrape"]},
        "profile": {"words": shipped["run"], "files": True},
        "rank": {"words": ["all"]},
        "run": {"names": "runs"},
        "run-or-file": {"names": "runs", "files": True},
        "runs": {"words": ["rm"], "names": "runs"},
        "shell": {"words": list(SCRIPTS)},
        "shipped": {"words": shipped["run"]},
        "state": {"words": list(RunState), "list": True},
        "suite": {"words": shipped["suite"], "files": True},
        "workspace": {"words": workspaces, "files": True},
    }


def tree() -> Json:
    """Every command with its options and arguments, as the parser has them."""
    return {"kinds": kinds(), **_group(get_group(app), ())}


def _group(group: Any, path: tuple[str, ...]) -> Json:
    found: Json = {}
    for name in list(group.commands):
        told = group.commands[name].short_help  # the command itself has its whole text
        command = group.get_command(None, name)
        made = _group(command, (*path, name)) if isinstance(command, TyperGroup) else _command(command, (*path, name))
        found[name] = {"help": told, **made}
    return {"commands": found}


def _command(command: Any, path: tuple[str, ...]) -> Json:
    options: Json = {"--help": {"help": "Show what it does, with an example."}}
    arguments, many = list[str](), False
    for one in command.params:
        if not one.opts[-1].startswith("-"):
            arguments.append(OF_COMMANDS.get((*path, one.name), ARGUMENTS.get(one.name, "")))
            many = one.nargs == -1
            continue
        taken = one.type_descriptor.annotation
        kind = None if taken is bool else OPTIONS.get(one.opts[-1], "") if taken not in (int, float) else ""
        for name in one.opts:
            known = {"help": (one.help or "").partition(". ")[0], "kind": kind, "again": one.multiple or None}
            options[name] = {key: value for key, value in known.items() if value is not None}
    return {"options": options, "arguments": arguments, **({"many": True} if many else {})}
