"""The application object of the command line, and the options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

app = typer.Typer(
    name="primus",
    help="Keeps a very large training run alive: healthy nodes in, bad nodes out, proven checkpoints only.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
profiles_app = typer.Typer(no_args_is_help=True, help="Shipped profiles, and whether yours is right.")
render_app = typer.Typer(no_args_is_help=True, help="Print the manifests that would be sent; touches nothing.")
workflow_app = typer.Typer(no_args_is_help=True, help="Any Argo Workflow, on the embedded cluster or a real one.")
clusters_app = typer.Typer(no_args_is_help=True, help="Cluster profiles, and making one from a living cluster.")
app.add_typer(profiles_app, name="profiles")
app.add_typer(clusters_app, name="clusters")
app.add_typer(render_app, name="render")
app.add_typer(workflow_app, name="workflow")

Run = Annotated[str, typer.Argument(help="Name of the run.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")]
Cluster = Annotated[
    str, typer.Option("--cluster", help="Cluster profile by name or path (PRIMUS_CLUSTER, else local).")
]
Set = Annotated[list[str] | None, typer.Option("--set", help="Change of the profile as a.b=c; may be repeated.")]
Why = Annotated[str, typer.Option("--why", help="Why, in words; it stands beside the action for ever.")]
Profile = Annotated[str, typer.Argument(help="Shipped profile by name, or a path.")]
Since = Annotated[str, typer.Option("--since", help="Only later: 2026-01-31T12:00, or 30m, 6h, 7d ago.")]
