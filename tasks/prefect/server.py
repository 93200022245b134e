"""The local Prefect server: one per home, in the background, on loopback, at the address it had before."""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

from profiles.errors import Unavailable
from tasks.addresses import API_URL, api_url, exempt, proxy_of
from tasks.processes import end_services, last_words, no_room, recorded, start_recorded, stop, write_whole

START_SECONDS = 120.0
"""An empty home needs 8 to 10 s (migrations); a busy machine ten times that."""
PORTS, PORTS_TRIED = range(20_000, 30_000), 32
"""Below those that Linux gives to connections (32768 to 60999 where nobody changed it) and Kubernetes to nodes."""
NAMED_SECONDS, NAMED_LOOK_SECONDS = 15.0, 0.5
"""For somebody else's server, which we did not start: it may be starting too, or the way there be shaky."""
FREE_LOOKS, FREE_LOOK_SECONDS = 50, 0.1
"""For so long a server that was killed may hold its port: what it had begun ends a moment after it."""
PID_FILE, MODULE = "server.json", "tasks.prefect.embedded_server"
PASSWORD_FILE = "prefect-auth"  # noqa: S105 - the name of a file
"""`user:password` of the pages and the API, for the owner of the home only; absent: none is asked for."""
PASSED_ON = (
    "PREFECT_SERVER_DATABASE_CONNECTION_URL",
    "PREFECT_API_DATABASE_CONNECTION_URL",
    "PREFECT_SERVER_API_AUTH_STRING",
    "PREFECT_API_AUTH_STRING",
    "PREFECT_API_SSL_CERT_FILE",
    "PREFECT_API_TLS_INSECURE_SKIP_VERIFY",
    "PREFECT_UI_STATIC_DIRECTORY",
)
"""Variables of Prefect's that are meant for our processes too; all others belong to somebody's own set-up."""
SERVER_PASSWORD, CLIENT_PASSWORD = "PREFECT_SERVER_API_AUTH_STRING", "PREFECT_API_AUTH_STRING"


def quiet_environment(home: Path) -> dict[str, str]:
    """The environment of every Prefect process of this home: its own data, no analytics, its password if it has one."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PREFECT_") or key in PASSED_ON}
    password = kept.get(SERVER_PASSWORD) or kept.get(CLIENT_PASSWORD) or password_of(home)
    if password:
        kept |= {SERVER_PASSWORD: password, CLIENT_PASSWORD: password}
    return {
        **kept,
        **exempt(kept),
        "PREFECT_HOME": str(home / "prefect"),
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "DO_NOT_TRACK": "1",
        "PREFECT_LOGGING_LEVEL": "WARNING",
        "PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW": "ignore",
    }


def opener(url: str) -> urllib.request.OpenerDirector:
    """What asks a server as the environment wants it: through its proxy, but never this machine."""
    proxy = proxy_of(url)
    return urllib.request.build_opener(urllib.request.ProxyHandler({urlsplit(url).scheme: proxy} if proxy else {}))


def password_of(home: Path) -> str:
    """`user:password` of this home's server; "" where none is asked for."""
    with suppress(OSError):
        return (home / PASSWORD_FILE).read_text(encoding="utf-8").strip()
    return ""


def make_password(home: Path) -> str:
    """Ask for a password from the next start on; the one that stands there stays."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    with suppress(FileExistsError):
        descriptor = os.open(home / PASSWORD_FILE, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(f"admin:{secrets.token_urlsafe(24)}\n")
    return password_of(home)


def server_url(home: Path) -> str | None:
    """Address of the API: the one the environment names, else that of the living server of this home, else None."""
    return os.environ.get(API_URL) or own_url(home)


def own_url(home: Path) -> str | None:
    """Address of the living server of this home, whatever the environment names."""
    found = recorded(home / PID_FILE)
    return found.detail if found else None


def named_server(home: Path) -> str:
    """Address of the API that the environment names, which answers; "" where it names none.

    Where the API stands below what was named, or somewhere else, the environment says so from now on.

    Raises:
        Unavailable: nobody answers there within `NAMED_SECONDS`.
        ProfileError: asking again does not help: no Prefect API is there, or it does not let us in.
    """
    named = api_url(os.environ.get(API_URL, ""))
    if not named:
        return ""
    from tasks.prefect.reach import reached_api  # noqa: PLC0415 - its client takes a tenth of a second to import

    deadline = time.monotonic() + NAMED_SECONDS
    while True:
        try:
            os.environ[API_URL] = found = reached_api(named, os.environ.get(CLIENT_PASSWORD) or password_of(home))
        except Unavailable:
            if time.monotonic() > deadline:
                raise
            time.sleep(NAMED_LOOK_SECONDS)
        else:
            return found


def ensure_server(home: Path, started: Callable[[str], None] = lambda url: None) -> str:
    """Address of a server that answers; starts one where none is named and none lives.

    `started` is called with the address of a server that was just started, while it is still warming up.

    Raises:
        Unavailable: it does not answer; its log is named where it is this home's own.
        ProfileError: what the environment names is no API that lets us in.
    """
    if named := named_server(home):
        return named
    url = begin_own_server(home, started)
    wait_for_server(url, home)
    return url


def begin_own_server(home: Path, started: Callable[[str], None] = lambda url: None) -> str:
    """Address of this home's own server, which may not answer yet; starts one where none lives."""
    if (url := own_url(home)) is not None:
        return url
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    with one_at_a_time(home / "server.lock"):
        if (url := own_url(home)) is None:
            url = _start(home)
            started(url)
    return url


def _start(home: Path) -> str:
    end_services(home, [MODULE])  # one that nobody can find any more has our port and our database
    port = _port(home)
    url = f"http://127.0.0.1:{port}/api"
    environment = {
        **quiet_environment(home),
        "PREFECT_UI_API_URL": url,
        "PREFECT_SERVER_API_PORT": str(port),
        # A flow run a minute is 43,000 a month: they are forgotten after 90 days. The ledger forgets nothing.
        "PREFECT_SERVER_SERVICES_DB_VACUUM_ENABLED": "events,flow_runs",
        # Events stand on the pages within a second instead of five.
        "PREFECT_SERVER_SERVICES_EVENT_PERSISTER_FLUSH_INTERVAL": "0.5",
    }
    words = ["--host", "127.0.0.1", "--port", str(port)]
    start_recorded(home / PID_FILE, MODULE, words, home / "logs" / "server.log", environment, url)
    with suppress(OSError):  # the next server has another address then, no more
        write_whole(home / "server.port", f"{port}\n")
    return url


def _port(home: Path) -> int:
    """The port of before where it is free: pages that are open and drivers that live know that address.

    A new one is none that the system gives to connections: whoever asks somebody else while the server is dead would
    have its port then.
    """
    with suppress(OSError, ValueError, OverflowError):
        before = int((home / "server.port").read_text())
        for _ in range(FREE_LOOKS):
            with suppress(OSError), _bound(before):
                return before
            time.sleep(FREE_LOOK_SECONDS)
    for _ in range(PORTS_TRIED):
        with suppress(OSError), _bound(PORTS.start + secrets.randbelow(len(PORTS))) as port:
            return port
    with _bound(0) as port:
        return port


@contextmanager
def _bound(port: int) -> Generator[int]:
    with socket.socket() as probe:
        # As the server itself does: what a dead one's connections left behind does not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", port))
        yield probe.getsockname()[1]


def answers(url: str, timeout_seconds: float = 2.0) -> str:
    """Why this machine's own server at the address of an API does not answer; "" where it does."""
    try:
        with opener(url).open(f"{url}/health", timeout=timeout_seconds):
            return ""
    except (urllib.error.URLError, OSError, ValueError) as error:
        return str(error)


def wait_for_server(url: str, home: Path) -> None:
    """Until this home's own server answers.

    Raises:
        Unavailable: it does not, or it died; its log is named.
    """
    deadline = time.monotonic() + START_SECONDS
    log = home / "logs" / "server.log"
    while error := answers(url):
        if own_url(home) is None:
            raise Unavailable(f"the Prefect server at {url} ended: {no_room(home) or last_words(log)}; see {log}")
        if time.monotonic() > deadline:
            raise Unavailable(f"the Prefect server at {url} does not answer ({no_room(home) or error}); see {log}")
        time.sleep(0.05)


def stop_server(home: Path) -> bool:
    """Stop the server of this home, also one that its pid file does not name; True where one lived."""
    named = stop(home / PID_FILE)
    return bool(end_services(home, [MODULE])) or named


@contextmanager
def one_at_a_time(path: Path) -> Generator[None]:
    """Of all processes of a home one after the other."""
    with ExitStack() as held:
        try:
            fcntl.flock(held.enter_context(path.open("w")), fcntl.LOCK_EX)
        except OSError as error:
            if error.errno != errno.EROFS:
                raise  # where nothing can be written at all, nobody else writes either
        yield
