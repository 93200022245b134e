"""The application object of the command line, and the options that several commands share.

A command's module is imported when that command is asked for, so that `primus --help` stays fast; which module has
which command stands in `deployments.cli.commands`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command_from_info, get_command_name, get_group

from deployments.cli.commands import GROUPS
from deployments.exit_codes import Outcome
from profiles.errors import ProfileError
from profiles.values import HOST_PATTERN, LABEL_CHARACTERS, LABEL_PATTERN, PATTERNS
from profiles.vocabulary import Mode
from workflows.model.records import one_line


def named(text: str, flag: str) -> tuple[str, ...]:
    """The names in `a,b`; none for "".

    Raises:
        ProfileError: one of them is empty: it would be passed over, and others than meant be taken.
    """
    names = tuple(text.split(",")) if text else ()
    if not all(name and name == name.strip() and name.isprintable() for name in names):
        raise ProfileError(flag, f"must be names with nothing but a comma between two, such as a,b; got {text!r}")
    return names


def named_nodes(text: str, flag: str = "--nodes") -> tuple[str, ...]:
    """The nodes of `--nodes`, or of another flag; none for "".

    Raises:
        ProfileError: one of them cannot be the name of a node.
    """
    names = named(text, flag)
    for name in names:
        if not re.fullmatch(HOST_PATTERN, name):
            raise ProfileError(flag, f"{name!r} must be {PATTERNS[HOST_PATTERN]}")
    return names


def named_mode(text: str) -> Mode | None:
    """The mode of `--mode`; None for "".

    Raises:
        ProfileError: there is no such mode.
    """
    if text and text not in tuple(Mode):
        raise ProfileError("--mode", f"must be one of {', '.join(Mode)}, got {text!r}")
    return Mode(text) if text else None


def named_tags(words: Sequence[str] | None) -> dict[str, str]:
    """The tags of `--tag name=value`.

    Raises:
        ProfileError: one is none, or a name has two values.
    """
    tags: dict[str, str] = {}
    for word in words or ():
        name, equals, value = word.partition("=")
        if not equals:
            raise ProfileError("--tag", f"must be written as name=value, e.g. team=vision; got {word!r}")
        for part in (name, value) if value else (name,):
            if not re.fullmatch(LABEL_PATTERN, part) or len(part) > LABEL_CHARACTERS:
                reason = f"{part!r} must be at most {LABEL_CHARACTERS} {PATTERNS[LABEL_PATTERN]}"
                raise ProfileError("--tag", reason)
        if tags.setdefault(name, value) != value:
            raise ProfileError("--tag", f"{name} is given twice: {tags[name]} and {value}")
    return tags


class CommandGroup(TyperGroup):
    """A group that knows its commands by name and summary, and imports one when it is asked for."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self._sections = GROUPS[self.name or ""]
        self._unknown = {name: command for section in self._sections.values() for name, command in section.items()}
        self.commands = {
            name: TyperCommand(name, short_help=command.summary) for name, command in self._unknown.items()
        }

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command itself; its module is imported."""
        command = self._unknown.pop(cmd_name, None)
        if command is not None:
            outcome = getattr(ctx, "obj", None)
            if command.acts and isinstance(outcome, Outcome):
                outcome.acts = True
            if command.module:
                import_module(command.module)
            self.commands[cmd_name] = _registered(self.name or "", cmd_name)
        return super().get_command(ctx, cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that is named; in a group whose commands are about one thing, that thing may be named at once."""
        direct = DIRECT.get(self.name or "")
        if direct and args and args[0] not in self.commands:
            return "", self.get_command(ctx, direct), args
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Name and summary of each, section by section."""
        del ctx
        width = max(len(name) for section in self._sections.values() for name in section)
        for title, section in self._sections.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), command.summary) for name, command in section.items()])


def _registered(group: str, name: str) -> Any:
    """What the module of a command registered, or the group of that name."""
    if group == NAME and name in TYPERS:
        return get_group(TYPERS[name])
    for info in TYPERS[group].registered_commands:
        if info.callback is not None and name == (info.name or get_command_name(info.callback.__name__)):
            return get_command_from_info(info, pretty_exceptions_short=False, rich_markup_mode=None)
    raise LookupError(f"the module of `{group} {name}` registers no command of that name")


def _typer(name: str, text: str, epilog: str | None = None) -> typer.Typer:
    return typer.Typer(
        name=name,
        cls=CommandGroup,
        help=text,
        epilog=epilog,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )


BOOTSTRAP_EXAMPLES = """\b
Examples:
  primus bootstrap ./made.yaml                    # make it, or go on with it
  primus bootstrap ./made.yaml --check            # what that would do
  primus bootstrap ./made.yaml --join n4,n5       # hosts become nodes
  primus bootstrap ./made.yaml --leave n4         # emptied, reset, taken out
  primus bootstrap ./made.yaml --leave n4 --dead  # it does not answer
  primus bootstrap ./made.yaml --upgrade 1.36.4   # as the profile's release
  primus bootstrap ./made.yaml --components       # what runs on the cluster
  primus bootstrap ./made.yaml --drift            # in what it differs by now
  primus bootstrap ./made.yaml --uninstall        # components go, data stay
  primus bootstrap ./made.yaml --uninstall --with-data --confirmed made
  primus bootstrap import hosts.ini --out made.yaml
  primus bootstrap mirror ./made.yaml --list
  primus bootstrap mirror ./made.yaml --fill ./mirror --from ./downloads
  primus bootstrap mirror ./made.yaml --check
  primus render bootstrap ./made.yaml             # the plan; asks nobody
"""
NAME = "primus"
app = _typer(
    NAME,
    "Keeps a very large training run alive: healthy nodes in, bad nodes out, proven checkpoints only. "
    "--version: which one this is.",
)
profiles_app = _typer("profiles", "Shipped profiles, and whether yours is right.")
clusters_app = _typer("clusters", "Cluster profiles, and making one from a living cluster.")
render_app = _typer("render", "Print the manifests that would be sent; touches nothing.")
workflow_app = _typer("workflow", "Any Argo Workflow, on the embedded cluster or a real one.")
bootstrap_app = _typer(
    "bootstrap",
    "From hosts with nothing but sshd to a cluster that has proven that it trains: primus bootstrap CLUSTER. "
    "primus bootstrap CLUSTER --help: how hosts join and leave, upgrades, drift.",
    BOOTSTRAP_EXAMPLES,
)
health_app = _typer("health", "The health service: a daemon on each node, as IBM Autopilot's.")
TYPERS = {
    NAME: app,
    "profiles": profiles_app,
    "clusters": clusters_app,
    "render": render_app,
    "workflow": workflow_app,
    "health": health_app,
    "bootstrap": bootstrap_app,
}
DIRECT = {"bootstrap": "CLUSTER"}
"""Groups in which a first word that is no command is that command's first argument."""
Run = Annotated[str, typer.Argument(help="Name of the run.")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")]
ClusterName = Annotated[
    str, typer.Option("--cluster", help="Cluster profile by name or path (PRIMUS_CLUSTER, else local).")
]
Set = Annotated[list[str] | None, typer.Option("--set", help="Change of the profile as a.b=c; may be repeated.")]
Tags = Annotated[
    list[str] | None, typer.Option("--tag", help="A word of yours to find it by, as name=value; may be repeated.")
]
Owner = Annotated[str, typer.Option("--owner", help="Whose it is; else yours.")]
Why = Annotated[
    str, typer.Option("--why", callback=one_line, help="Why, in words; it stands beside the action for ever.")
]
Profile = Annotated[str, typer.Argument(help="Shipped profile by name, or a path.")]
Since = Annotated[str, typer.Option("--since", help="Only later: 2026-01-31T12:00, or 30m, 6h, 7d ago.")]
MOST = 1_000_000_000
Limit = Annotated[int, typer.Option("--limit", min=0, max=MOST, help="At most so many, the newest; 0: all.")]
All = Annotated[bool, typer.Option("--all", help="Also each line of which many are good; else their number.")]
Only = Annotated[
    list[str] | None,
    typer.Option("--only", help="state=, verdict=, pool=, rack= or node=VALUE[,VALUE], * for any text; repeatable."),
]
