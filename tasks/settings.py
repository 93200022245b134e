"""What the environment says: where our state lives, which ledger, which cluster, which token.

Read once at the edge of a program and handed on as a value; nothing else of ours reads these variables. Two homes never
see each other: every path below comes from `home`, also the storage of a cluster profile that says `{home}`.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from profiles.cluster import ClusterProfile
from profiles.errors import ProfileError, Unavailable
from profiles.values import OWNER_CHARACTERS, OWNER_PATTERN, PATTERNS, did_you_mean
from profiles.vocabulary import Mode

HOME = "PRIMUS_HOME"
LEDGER_URL = "PRIMUS_LEDGER_URL"
CLUSTER = "PRIMUS_CLUSTER"
MODE = "PRIMUS_MODE"
OWNER = "PRIMUS_OWNER"
TOKEN = "PRIMUS_TOKEN"  # noqa: S105 - the name of a variable
TOKEN_FILE = "PRIMUS_TOKEN_FILE"  # noqa: S105 - the name of a variable
_TOKEN_BYTES = 32


@dataclass(frozen=True)
class Settings:
    """The environment as a value; `repr` shows neither token nor ledger URL, which may hold a password."""

    home: Path
    """All local state, an absolute path."""
    ledger_url: str = field(repr=False)
    """SQLAlchemy URL of the ledger."""
    cluster: str
    """Name of the cluster profile that is used where a command names none."""
    token_file: Path
    """Where the bearer token is read from."""
    given_token: str = field(default="", repr=False)
    """The token of `PRIMUS_TOKEN`; "" where it is read from `token_file`."""
    token_file_is_ours: bool = True
    """True: the file is made where there is none."""
    prefect_api_url: str = ""
    """`PREFECT_API_URL`; "": the background server under this home."""
    mode: Mode | None = None
    """How far automation of new runs goes; None: as their recovery profiles say."""
    owner: str = ""
    """Whose new runs are; "": of who asks for them."""

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> Settings:
        """The settings of `environ`; an empty variable counts as absent. Touches no file.

        Raises:
            ProfileError: a variable has a value that cannot be used.
        """
        home = _home(environ)
        named_token_file = environ.get(TOKEN_FILE, "")
        given_token = environ.get(TOKEN, "")
        if given_token:
            _check_token(given_token, TOKEN)
        return cls(
            home=home,
            ledger_url=environ.get(LEDGER_URL, "") or f"sqlite:///{home / 'ledger.sqlite'}",
            cluster=environ.get(CLUSTER, "") or "local",
            token_file=expanded(named_token_file, TOKEN_FILE).absolute() if named_token_file else home / "token",
            given_token=given_token,
            token_file_is_ours=not named_token_file,
            prefect_api_url=environ.get("PREFECT_API_URL", ""),
            mode=_mode(environ.get(MODE, "")),
            owner=_owner(environ.get(OWNER, "")),
        )

    @property
    def prefect_home(self) -> Path:
        """State of the background Prefect server."""
        return self.home / "prefect"

    @property
    def logs(self) -> Path:
        """Output of processes that we start in the background."""
        return self.home / "logs"

    def cluster_home(self, cluster: str) -> Path:
        """Everything of one embedded cluster."""
        return self.home / "clusters" / cluster

    def make_home(self) -> Path:
        """Create the home, for its owner only.

        Raises:
            ProfileError: it cannot be created or written.
        """
        try:
            self.home.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise ProfileError(HOME, f"cannot create {self.home} ({error.strerror}): name another folder") from error
        if not os.access(self.home, os.W_OK | os.X_OK):
            raise ProfileError(HOME, f"{self.home} is not writable: change its owner or name another folder")
        return self.home

    def token(self) -> str:
        """The bearer token of our HTTP endpoints, made at first use: many processes at once get the same one.

        Raises:
            ProfileError: a named token file is missing, unreadable or holds no token.
        """
        if self.given_token:
            return self.given_token
        where = TOKEN_FILE if not self.token_file_is_ours else f"{HOME}/token"
        if self.token_file_is_ours and not self.token_file.exists():
            self.make_home()
            _make_token(self.token_file)
        try:
            token = self.token_file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ProfileError(where, f"cannot read {self.token_file}: {error}") from error
        _check_token(token, where)
        return token


def _mode(word: str) -> Mode | None:
    if word and word not in tuple(Mode):
        raise ProfileError(MODE, f"{word!r} is unknown{did_you_mean(word, Mode, 'modes')}")
    return Mode(word) if word else None


def _owner(word: str) -> str:
    if not re.fullmatch(OWNER_PATTERN, word) or len(word) > OWNER_CHARACTERS:
        raise ProfileError(OWNER, f"{word!r} must be {PATTERNS[OWNER_PATTERN]}")
    return word


def _home(environ: Mapping[str, str]) -> Path:
    asked = environ.get(HOME, "")
    if "?" in asked:
        raise ProfileError(HOME, "contains a question mark, which ends the path in a ledger URL: use another folder")
    user_home = environ.get("HOME", "")
    if not asked and not user_home:
        raise ProfileError(HOME, "is not set and neither is HOME: say where our state may live")
    home = expanded(asked, HOME).absolute() if asked else Path(user_home).absolute() / ".primus"
    try:
        str(home).encode()
    except UnicodeEncodeError as error:
        raise ProfileError(HOME, f"{str(home)!a} is no UTF-8 text, as a ledger URL wants it") from error
    return home


def expanded(path: str, field: str) -> Path:
    """The path with the home that its `~` means.

    Raises:
        ProfileError: nobody knows that home.
    """
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise ProfileError(field, f"{path!r}: there is no HOME for `~`: write the whole path") from error


def _check_token(token: str, where: str) -> None:
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise ProfileError(where, "is no token: use printable ASCII without spaces, it travels in an HTTP header")


def _make_token(path: Path) -> None:
    """Write whole and then link, so that no reader gets half a token and the first of many writers wins."""
    draft = path.with_name(f".token-{secrets.token_hex(8)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(secrets.token_urlsafe(_TOKEN_BYTES) + "\n")
        os.link(draft, path)
    except FileExistsError:
        return
    finally:
        draft.unlink()


def localised(profile: ClusterProfile, home: Path) -> ClusterProfile:
    """The profile with `{home}` replaced in its paths; frozen into the run, so a moved home does not move a run."""
    shared = tuple(
        item.model_copy(
            update={
                "source": item.source.replace("{home}", str(home)),
                "mount_path": item.mount_path.replace("{home}", str(home)),
            }
        )
        for item in profile.storage
    )
    return profile.model_copy(update={"storage": shared, "kubeconfig": profile.kubeconfig.replace("{home}", str(home))})


def make_own_storage(profile: ClusterProfile, home: Path) -> None:
    """Folders of PRIMUS_HOME that pods of a real cluster mount: only an existing one is taken there.

    Raises:
        Unavailable: one cannot be made.
    """
    for item in profile.storage:
        if item.kind == "host_path" and Path(item.source).is_relative_to(home):
            try:
                Path(item.source).mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise Unavailable(f"{item.source} cannot be made: {error.strerror}") from error
