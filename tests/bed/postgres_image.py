"""An image with PostgreSQL from Debian's package, made without a registry and without a daemon.

It has what the product's manifest asks of such an image: `postgres`, `initdb` and `pg_isready` on the PATH, a shell,
a user `postgres` with the number 999, and SIGINT as the signal that stops it.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from deployments.images import contents, oci
from deployments.images.oci import Layer
from tests.bed.commands import BedError
from tests.bed.images import BUSYBOX

POSTGRES_USER = 999
"""As the product's manifest says."""
USERS = (
    b"root:x:0:0:root:/root:/bin/sh\n"
    + f"postgres:x:{POSTGRES_USER}:{POSTGRES_USER}:postgres:/var/lib/postgresql:/bin/sh\n".encode()
)
GROUPS = f"root:x:0:\npostgres:x:{POSTGRES_USER}:\n".encode()
TOOLS = ("sh", "test", "echo", "rm", "mv")
"""What the first start calls."""


def installed() -> Path:
    """The package's own folder, e.g. /usr/lib/postgresql/15.

    Raises:
        BedError: there is none.
    """
    found = shutil.which("initdb") or ""
    folder = Path(found).resolve().parent.parent
    if not found or folder.parent.name != "postgresql":
        raise BedError("no PostgreSQL of Debian's here: apt-get install postgresql, with initdb on the PATH")
    return folder


def build(archive: Path, name: str) -> None:
    """Write the image.

    Args:
        archive: where to.
        name: what it is called, with its tag.

    Raises:
        BedError: see `installed`.
    """
    package = installed()
    share = Path("/usr/share/postgresql") / package.name
    layer = Layer()
    layer.folder("/tmp", 0o1777)
    layer.data("/etc/passwd", USERS)
    layer.data("/etc/group", GROUPS)
    layer.file("/bin/busybox", BUSYBOX)
    for tool in TOOLS:
        layer.link(f"/bin/{tool}", "busybox")
    found = [package / "bin" / tool for tool in ("postgres", "initdb", "pg_isready")]
    found += [path for path in sorted((package / "lib").glob("*.so*")) if not path.name.startswith("llvmjit")]
    for path in (*found, *contents.files(share, frozenset({"man"}))):
        layer.file(str(path), path)
    for path in contents.files(Path("/usr/share/zoneinfo"), frozenset({"posix", "right"})):
        layer.file(str(path), path)
    contents.add_libraries(layer, found)
    # As the official image: on SIGTERM it would wait for the last client to go.
    environment = [f"PATH={package}/bin:/bin", "LANG=C.UTF-8"]
    settings = {"User": "postgres", "StopSignal": "SIGINT", "WorkingDir": "/", "Env": environment}
    oci.write(archive, settings, [layer], [name])
