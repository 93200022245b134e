"""`primus profiles`, `render train` and `render workspace`: shipped profiles and manifests; nothing is touched.

`primus run -- COMMAND` and `primus init`: a run without a profile, and a profile to go on from.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from deployments.cli.app import (
    AsJson,
    ClusterName,
    Owner,
    Profile,
    Set,
    Tags,
    app,
    named_tags,
    profiles_app,
    render_app,
)
from deployments.exit_codes import GOOD, out, out_json, say
from deployments.screen.tables import table
from profiles.cluster import ClusterProfile
from profiles.errors import ProfileError
from profiles.from_command import (
    COMMAND,
    HEAD,
    Data,
    Here,
    Program,
    as_text,
    cluster_on,
    data_like,
    profile_of,
    recipe_for,
    recipe_named,
    script_of,
    slug,
    started_file,
    with_hints,
)
from profiles.loading import load
from profiles.loading.document import read_mapping
from profiles.loading.validation import asked_for
from profiles.request import TrainRequest
from profiles.resolve import Resolved
from profiles.values import Value
from tasks.runs.open import resolve_request
from tasks.settings import Settings


@profiles_app.command("list")
def list_profiles(*, as_json: AsJson = False) -> int:
    """The shipped profiles, and which of them were run for real.

    Example: primus profiles list
    """
    rows: list[dict[str, Any]] = [
        {"kind": item.kind, "name": item.name, "verified": item.verified, "description": item.description}
        for item in load.list_profiles()
    ]
    if as_json:
        out_json(rows)
    else:
        out(table(rows, ("kind", "name", "verified", "description")))
    return GOOD


@profiles_app.command("show")
def profiles_show(profile: Profile, overrides: Set = None, as_json: AsJson = False) -> int:
    """The whole value of a run, cluster, hardware or recovery profile.

    Example: primus profiles show demo --set steps=100
    """
    return show_profile(profile, tuple(overrides or ()), as_json=as_json)


@profiles_app.command("validate")
def validate_profile(profile: Profile, cluster: ClusterName = "", *, as_json: AsJson = False) -> int:
    """Whether a run profile is right and fits the cluster: field, reason, what to do.

    Example: primus profiles validate ./my-run.yaml
    """
    settings = Settings.from_environment(os.environ)
    resolved = resolve_request(TrainRequest(profile=profile, cluster=cluster), settings)
    verdict = {
        "profile": resolved.run.name,
        "cluster": resolved.cluster.name,
        "pool": resolved.pool.name,
        "hardware": resolved.hardware.name,
        "gpus": resolved.gpus,
        "verified": resolved.run.verified,
    }
    if as_json:
        out_json(verdict)
    else:
        known = "" if resolved.run.verified else " (unverified: nobody has run it yet)"
        out(f"{resolved.run.name} is right and fits {resolved.cluster.name}, pool {resolved.pool.name}{known}")
    return GOOD


@render_app.command("train")
def render_train(
    profile: Profile,
    cluster: ClusterName = "",
    overrides: Set = None,
    form: Annotated[
        str, typer.Option("--as", metavar="jobset|trainjob|pytorchjob", help="The gang alone, in this form.")
    ] = "",
    as_json: AsJson = False,
) -> int:
    """The manifests of the first attempt.

    Example: primus render train demo --as trainjob
    """
    return print_run(profile, cluster, tuple(overrides or ()), form, as_json=as_json)


@render_app.command("workspace")
def print_workspace(
    profile: Annotated[str, typer.Argument(help="Workspace profile: a shipped one by name, or a path.")],
    *,
    with_control: Annotated[bool, typer.Option("--with-control", help="Also what the runner needs once.")] = False,
    as_json: AsJson = False,
) -> int:
    """Namespace, rights, queue, quotas and priorities of a workspace, for `kubectl apply --server-side -f -`.

    Example: primus render workspace ./my-team.yaml
    """
    from workflows.platform.workspace import control, workspace

    wanted = load.load_workspace(profile)
    documents = [*(control(wanted.runner_namespace) if with_control else []), *workspace(wanted)]
    if as_json:
        out_json(documents)
    else:
        import yaml

        out(yaml.safe_dump_all(documents, sort_keys=False, width=120))
    return GOOD


def show_profile(name: str, overrides: tuple[str, ...], *, as_json: bool) -> int:
    """One profile as a whole: of a run, else of a cluster, a workspace, a suite, hardware or recovery of that name."""
    kinds = {item.kind for item in load.list_profiles() if item.name == name}
    value: Value
    if not kinds or "run" in kinds:
        value = load.load_run(name, overrides=overrides)
    elif "cluster" in kinds:
        value = load.load_cluster(name, overrides=overrides)
    elif "workspace" in kinds:
        value = load.load_workspace(name, overrides=overrides)
    elif "suite" in kinds:
        value = load.load_suite(name, overrides=overrides)
    elif overrides:
        raise ProfileError("--set", f"changes runs, clusters, workspaces and suites; {name} is none of them")
    else:
        value = load.load_hardware(name) if "hardware" in kinds else load.load_recovery(name)
    if as_json:
        out_json(value.model_dump(mode="json"))
    else:
        out(load.dump(value))
    return GOOD


def print_run(profile: str, cluster: str, overrides: tuple[str, ...], form: str, *, as_json: bool) -> int:
    """The manifests of a first attempt."""
    settings = Settings.from_environment(os.environ)
    resolved = resolve_request(TrainRequest(profile=profile, cluster=cluster, overrides=overrides), settings)
    return render_resolved(resolved, form, as_json=as_json)


def render_resolved(resolved: Resolved, form: str, *, as_json: bool) -> int:
    """Print what would be sent for attempt 1; `dry-run` asks the cluster whether it would take it."""
    from workflows.attempt.plan import AttemptPlan
    from workflows.attempt.training import gang, manifests
    from workflows.model.gang_status import lent_restarts

    recovery, ours = resolved.run.recovery, form in ("", "dry-run")
    plan = AttemptPlan(
        resolved=resolved,
        run=f"{resolved.run.name[:24].rstrip('-')}-1",
        attempt=1,
        restarts_in_place=lent_restarts(recovery, recovery.mode, paused=False) if ours else 0,
    )
    documents = manifests(plan) if ours else gang(plan, form)
    if form == "dry-run":
        from tasks.clusters import open_cluster

        cluster = open_cluster(resolved.cluster, Settings.from_environment(os.environ).home)
        for document in documents:
            cluster.apply(document, dry_run=True)
    if as_json:
        out_json(documents)
    else:
        import yaml

        out(yaml.safe_dump_all(documents, sort_keys=False, width=120))
    return GOOD


WORDS = {"allow_interspersed_args": False}
"""What stands behind the first word is the command's, with or without `--`."""
MOST = 1_000_000
MOST_STEPS = 1_000_000_000_000
SCRIPT_CHARACTERS = 1 << 18
"""Of a program: its imports stand at its beginning."""

Words = Annotated[list[str] | None, typer.Argument(metavar="-- COMMAND", help="The program and its arguments.")]
Ranks = Annotated[
    int | None, typer.Option("--ranks", min=1, max=MOST, help="Ranks in all; else as torchrun says, or 1.")
]
Nodes = Annotated[int | None, typer.Option("--nodes", min=1, max=MOST, help="Nodes they are spread over; else 1.")]
Steps = Annotated[int, typer.Option("--steps", min=0, max=MOST_STEPS, help="Planned steps; 0: its exit code tells.")]
Checkpoints = Annotated[
    str, typer.Option("--checkpoints", help="Where it saves: a folder/, or folder/model-{step}.pt; * for any text.")
]
Resume = Annotated[
    str, typer.Option("--resume", help="Added where there is something to resume, e.g. '--resume {resume_from}'.")
]
Progress = Annotated[
    str, typer.Option("--progress", help="How steps look: huggingface, megatron, …, or a pattern with (?P<step>\\d+).")
]
Image = Annotated[str, typer.Option("--image", help="Container image; on the embedded cluster not needed.")]


@dataclass(frozen=True)
class Quick:
    """What `primus run` and `primus init` were told of a program."""

    program: Program
    cluster: str
    overrides: tuple[str, ...] = ()
    mode: str = ""
    tags: tuple[str, ...] = ()
    owner: str = ""


@app.command("run", context_settings=WORDS)
def run_command(  # noqa: PLR0913, PLR0917 - each is a flag that was promised
    command: Words = None,
    name: Annotated[str, typer.Option("--name", help="Name of the run; the same name continues it.")] = "",
    ranks: Ranks = None,
    nodes: Nodes = None,
    steps: Steps = 0,
    checkpoints: Checkpoints = "",
    resume: Resume = "",
    progress: Progress = "",
    image: Image = "",
    cluster: ClusterName = "",
    overrides: Set = None,
    mode: Annotated[str, typer.Option("--mode", help="observe, ask or act; outranks the recovery profile.")] = "",
    tags: Tags = None,
    owner: Owner = "",
    detach: Annotated[bool, typer.Option("--detach", help="Return as soon as a driver has it.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check everything and print what would be sent.")] = False,
    as_json: AsJson = False,
) -> int:
    """Train with a command and no profile, as `primus train` does with one. On the embedded cluster it starts here.

    Example: primus run --checkpoints 'out/model-{step}.pt' -- torchrun --nproc-per-node 2 train.py --lr 0.1
    """
    program = Program(tuple(command or ()), ranks, nodes, steps, checkpoints, resume, progress, image)
    quick = Quick(program, cluster, tuple(overrides or ()), mode, tuple(tags or ()), owner)
    from deployments.cli.train import train_run

    data, notes = written(quick, "")
    asked: dict[str, Any] = {"inline": data, "name": name, "cluster": cluster, "overrides": list(quick.overrides)}
    asked |= {"tags": named_tags(tags), "owner": owner}
    request = asked_for(TrainRequest, asked | ({"mode": mode} if mode else {}))
    kept = f"to keep it as a profile: {as_words('init', quick)}"
    return train_run(
        request,
        lambda run: as_words("run", quick, run),
        (*notes, kept),
        detach=detach,
        dry_run=dry_run,
        as_json=as_json,
    )


@app.command("init", context_settings=WORDS)
def write_profile(  # noqa: PLR0913, PLR0917 - each is a flag that was promised
    command: Words = None,
    like: Annotated[
        str, typer.Option("--like", help="A shipped profile: nanogpt, huggingface, torchtitan, megatron, xgboost, …")
    ] = "",
    name: Annotated[str, typer.Option("--name", help="Name of the profile; else that of the program.")] = "",
    ranks: Ranks = None,
    nodes: Nodes = None,
    steps: Steps = 0,
    checkpoints: Checkpoints = "",
    resume: Resume = "",
    progress: Progress = "",
    image: Image = "",
    cluster: Annotated[
        str,
        typer.Option("--cluster", help="Cluster profile it must fit; of a shipped one a file to change is written."),
    ] = "",
    target: Annotated[str, typer.Option("--out", help="The file; else ./NAME.yaml.")] = "",
    force: Annotated[bool, typer.Option("--force", help="Write over files that are there.")] = False,
    as_json: AsJson = False,
) -> int:
    """Write a run profile with comments, for a command, a program of this folder or like a shipped one.

    Example: primus init -- torchrun --nproc-per-node 8 train.py --steps 100
    Example: primus init --like nanogpt
    """
    program = Program(tuple(command or ()), ranks, nodes, steps, checkpoints, resume, progress, image)
    if not (program.command or like):
        program = replace(program, command=_program_here())
    data, notes = started(Quick(program, cluster), like, name)
    words = _write_profile(data, Path(target or f"{data['name']}.yaml"), cluster, force=force)
    if as_json:
        out_json({**words, "notes": notes})
    else:
        for line in (*notes, *(f"{words[kind]} is written" for kind in ("profile", "cluster") if words[kind])):
            say(line)
        say(f"start it: {words['start']}")
    return GOOD


def _write_profile(data: Data, profile: Path, cluster: str, *, force: bool) -> dict[str, str | None]:
    """Write it, and a cluster profile where a shipped one is named; what was written, and the commands that go on."""
    own_cluster = Path(f"my-{cluster}.yaml") if cluster and not load.is_path(cluster) else None
    where = ["--cluster", shown(own_cluster) if own_cluster else cluster] if cluster else []
    verbs = {"check": ["profiles", "validate"], "start": ["train"]}
    lines = {key: shlex.join(["primus", *verb, shown(profile), *where]) for key, verb in verbs.items()}
    files = {profile: with_hints(as_text(data, HEAD.format(**lines)), data)}
    if own_cluster:
        files[own_cluster] = cluster_on(load.load_cluster(cluster), own_cluster.stem)
    _check(files[profile], cluster)
    _write(files, force=force)
    return {"profile": str(profile), "cluster": str(own_cluster) if own_cluster else None, **lines}


def shown(path: Path) -> str:
    """The path as a profile is named by one."""
    return str(path) if path.is_absolute() else f"./{path}"


PROGRAMS = ("train.py", "pretrain.py", "finetune.py", "main.py", "run.py")


def _program_here() -> tuple[str, ...]:
    """What this folder seems to train with; nothing where that is not plain."""
    there = sorted(path.name for path in Path().glob("*.py") if not re.match(r"(test_|conftest|setup)", path.name))
    named = [name for name in PROGRAMS if name in there] or (there if len(there) == 1 else [])
    return ("python3", named[0]) if named else ()


def started(quick: Quick, like: str, name: str) -> tuple[Data, tuple[str, ...]]:
    """A profile to go on from, and notes: of the command, or on top of a shipped profile.

    Raises:
        ProfileError: names the flag.
    """
    settings = Settings.from_environment(os.environ)
    recipe = recipe_named(like, load.run_names()) if like else ""
    if quick.program.command:
        return written(quick, name, recipe)
    if quick.program != Program(()):
        raise ProfileError(COMMAND, "is missing, and what was said of it would be lost: write the program behind --")
    nothing = () if like else ("no program was found here: this is the demo's; write its command for yours",)
    cluster = load.load_cluster(quick.cluster or settings.cluster)
    return data_like(load.load_run(recipe or "demo"), cluster, here().folder, name or f"my-{recipe or 'demo'}"), nothing


def _check(text: str, cluster: str) -> None:
    data = read_mapping(text.encode(), "what would be written").data
    resolve_request(TrainRequest(inline=data, cluster=cluster), Settings.from_environment(os.environ))


def _write(files: Mapping[Path, str], *, force: bool) -> None:
    for path in files:
        if os.path.lexists(path) and not force:
            raise ProfileError(str(path), "is there already: --force writes over it, --out names another file")
    for path, text in files.items():
        try:
            with open(path, "w" if force else "x", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            raise ProfileError(str(path), f"cannot be written: {error.strerror}") from error


def as_words(verb: str, quick: Quick, name: str = "") -> str:
    """The command that asks for the same again."""
    program = quick.program
    flags: dict[str, object] = {
        "--name": name, "--ranks": program.ranks, "--nodes": program.nodes, "--steps": program.steps,
        "--checkpoints": program.checkpoints, "--resume": program.resume, "--progress": program.progress,
        "--image": program.image,
    }  # fmt: skip
    if verb == "run" or load.is_path(quick.cluster):
        flags["--cluster"] = quick.cluster
    words = [word for flag, value in flags.items() if value for word in (flag, str(value))]
    if verb == "run":
        from deployments.cli.train import finding_words

        words += ["--mode", quick.mode] if quick.mode else []
        words += finding_words(quick.tags, quick.owner)
        words += [word for change in quick.overrides for word in ("--set", change)]
    return shlex.join(["primus", verb, *words, "--", *program.command])


def written(quick: Quick, name: str, recipe: str = "") -> tuple[Data, tuple[str, ...]]:
    """The profile of a program as data, and notes for people.

    `name`: of the profile, "": the program's. `recipe`: the shipped profile of its kind, "": what it looks like.

    Raises:
        ProfileError: names the flag.
    """
    program, settings = quick.program, Settings.from_environment(os.environ)
    if not program.command:
        raise ProfileError(COMMAND, "is missing: write the program behind --, as in `primus run -- python3 train.py`")
    cluster = load.load_cluster(quick.cluster or settings.cluster)
    script = _read(script_of(program.command))
    recipe = recipe or recipe_for(program.command, script)
    like = load.load_run(recipe) if recipe else None
    data, notes = profile_of(program, cluster, here(), name or slug(program.command), like, script)
    missing = started_file(data["roles"][0]["command"])
    if missing and cluster.engine == "embedded" and not os.path.isfile(missing):
        raise ProfileError(COMMAND, f"there is no {missing} in {os.getcwd()}")
    return data, (*notes, *_told(recipe, data, cluster))


def _told(recipe: str, data: Data, cluster: ClusterProfile) -> list[str]:
    notes = [f"it looks like a program of kind {recipe}: its steps and checkpoints are read as such"] if recipe else []
    folder = str(data.get("checkpoint", {}).get("directory", ""))
    if cluster.engine == "embedded" and folder.startswith("/") and Path(folder).is_dir() and os.listdir(folder):
        notes.append(f"{folder} is not empty: where checkpoints lie there, the run goes on from the newest whole one")
    return notes


def here() -> Here:
    """This shell."""
    try:
        folder = os.getcwd()
    except OSError as error:
        raise ProfileError(COMMAND, f"there is no folder any more to start it in: {error.strerror}") from error
    return Here(folder, shutil.which, os.path.dirname(sys.executable))


def _read(script: str) -> str:
    try:
        with open(script, encoding="utf-8", errors="replace") as file:
            return file.read(SCRIPT_CHARACTERS)
    except OSError:
        return ""
