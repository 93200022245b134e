"""Makes a host what it is to be: modules, kernel parameters, files, fetched programs, images; or says what it would do.

    python3 -I -c "$(cat put.py)" [--check] < WANTED.json

It stands on the standard library alone and is sent as it is, so nothing has to be on a host beforehand. It prints one
line of JSON: `changed` (what was, or with `--check` would be, done) and `lacking` (what has to be fetched and has no
URL: whoever asks brings it). What is right already is not touched.

Where `pending` names a file, what is about to be done is appended there first, and `changed` begins with what stands in
it: whoever is killed before the units of a change were begun anew is told of it again. Who asks removes that file.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import shutil
import ssl
import subprocess
import sys
import tarfile
import urllib.request
from typing import Any, Dict, List

TRIES = 3
FETCH_SECONDS = 60.0
"""A mirror that says nothing for so long is tried again."""
BLOCK = 1 << 20


class Put:
    """One run; `changed` and `lacking` grow."""

    def __init__(self, wanted: Dict[str, Any], check: bool) -> None:
        self.wanted, self.check = wanted, check
        self.changed: List[str] = _lines(wanted.get("pending", ""))
        self.lacking: List[str] = []

    def run(self) -> Dict[str, List[str]]:
        """All parts, in the order in which they need each other."""
        for name, sign in self.wanted.get("modules", {}).items():
            self._module(name, sign)
        for file in self.wanted.get("files", ()):
            self._file(file["path"], file["content"].encode(), file["mode"])
        for name, value in self.wanted.get("sysctls", {}).items():
            self._sysctl(name, value)
        for path in self.wanted.get("absent", ()):
            self._absent(path)
        for item in self.wanted.get("downloads", ()):
            self._download(item)
        for path, places in self.wanted.get("links", {}).items():
            self._link(path, places)
        if self.wanted.get("images"):
            self._images(self.wanted["images"], self.wanted.get("archives", ()))
        return {"changed": self.changed, "lacking": self.lacking}

    def _module(self, name: str, sign: str) -> None:
        if not os.path.exists(sign) and self._does(f"module {name}"):
            subprocess.run(["modprobe", name], check=True, capture_output=True, text=True)

    def _sysctl(self, name: str, value: str) -> None:
        path = os.path.join("/proc/sys", name.lstrip("-").replace(".", "/"))
        if name.startswith("-") and not os.path.exists(path):
            return
        if not os.path.exists(path) and self.check:
            self._does(f"sysctl {name}={value}")  # its module is not loaded yet
            return
        with open(path) as file:
            found = file.read().split()
        if found != value.split() and self._does(f"sysctl {name}={value}"):
            with open(path, "w") as file:
                file.write(value)

    def _file(self, path: str, content: bytes, mode: int) -> None:
        if _digest(path) == hashlib.sha256(content).hexdigest() and os.stat(path).st_mode & 0o7777 == mode:
            return
        if self._does(path):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            half = f"{path}.primus-half"
            # Nobody else ever reads it with a wider mode than it is to have, whatever the umask is.
            with open(os.open(half, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.chmod(half, mode)
            os.replace(half, path)

    def _absent(self, path: str) -> None:
        if os.path.lexists(path) and self._does(f"no {path}"):
            shutil.rmtree(path) if os.path.isdir(path) and not os.path.islink(path) else os.remove(path)

    def _link(self, path: str, places: List[str]) -> None:
        place = next((place for place in places if os.path.isdir(place)), None)
        if place and not os.path.lexists(path) and self._does(f"{path} -> {place}"):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            os.symlink(place, path)

    def _download(self, item: Dict[str, Any]) -> None:
        """A file that may have been brought by somebody else (`at`), or is fetched from `url`."""
        stamped = _digest(item["stamp"]) == hashlib.sha256(item["sha256"].encode()).hexdigest()
        if stamped if item["unpack"] else _digest(item["target"]) == item["sha256"]:
            return
        at = item["at"] if item["unpack"] else item["target"]
        if not item["url"] and _digest(at) != item["sha256"]:
            self.lacking.append(item["name"])
        if not self._does(f"{item['target']} ({item['name']})") or item["name"] in self.lacking:
            return
        if item["url"]:
            self._fetch(item["url"], at, item["sha256"])
        if item["unpack"]:
            os.makedirs(item["target"], exist_ok=True)
            with tarfile.open(at) as archive:
                archive.extractall(item["target"])  # noqa: S202 - its digest is the release's
            os.remove(at)
            self._file(item["stamp"], item["sha256"].encode(), 0o644)

    def _fetch(self, url: str, target: str, sha256: str) -> None:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        half, why = f"{target}.primus-half", ""
        for _ in range(TRIES):
            try:
                found = self._receive(url, half)
            except (OSError, http.client.HTTPException) as error:
                why = str(error) or type(error).__name__
                continue
            if found == sha256:
                os.chmod(half, 0o755)  # noqa: S103 - a program for everybody
                os.replace(half, target)
                return
            why = f"it has the SHA-256 {found}, the release says {sha256}"
            break
        if os.path.exists(half):
            os.remove(half)
        raise OSError(f"{url}: {why}")

    def _receive(self, url: str, half: str) -> str:
        context = ssl.create_default_context(cadata=self.wanted.get("authority") or None)
        if self.wanted.get("authority"):
            context.load_default_certs()
        # No proxy stands between: a mirror is a site's own.
        handlers = (urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))
        digest = hashlib.sha256()
        with (
            urllib.request.build_opener(*handlers).open(url, timeout=FETCH_SECONDS) as answer,
            open(half, "wb") as file,
        ):
            while True:
                block = answer.read(BLOCK)
                if not block:
                    break
                digest.update(block)
                file.write(block)
            if answer.length:
                raise OSError(f"cut off by the mirror, {answer.length} bytes before its end")
            file.flush()
            os.fsync(file.fileno())
        return digest.hexdigest()

    def _images(self, images: Dict[str, str], archives: List[Dict[str, Any]]) -> None:
        """Import the archives where an image is missing, and pull what they do not bring."""
        missing = _missing(images)
        if not missing or not self._does(f"images {' '.join(missing)}"):
            return
        for item in archives:
            if _digest(item["target"]) != item["sha256"]:
                if not item["url"]:
                    self.lacking.append(item["name"])
                    continue
                self._fetch(item["url"], item["target"], item["sha256"])
            _ctr("import", item["target"])
            os.remove(item["target"])
        for name in _missing(images) if not self.lacking else ():
            pinned = f"{name.rpartition(':')[0]}@{images[name]}" if images[name] else name
            _ctr("pull", "--hosts-dir", "/etc/containerd/certs.d", pinned)
            if pinned != name:
                _ctr("tag", "--force", pinned, name)

    def _does(self, what: str) -> bool:
        """Note it, on disk first where it is to be done now; whether it is."""
        if what in self.changed:
            return not self.check  # it stands there from an earlier run
        pending = self.wanted.get("pending", "")
        if pending and not self.check:
            os.makedirs(os.path.dirname(pending), exist_ok=True)
            with open(pending, "a") as file:
                file.write(f"\n{what}")  # a line of its own, also behind one that a power cut tore
                file.flush()
                os.fsync(file.fileno())
        self.changed.append(what)
        return not self.check


def _lines(path: str) -> List[str]:
    """Of a text file, each once and none empty; none where there is no file."""
    try:
        with open(path) as file:
            return list(dict.fromkeys(line for line in file.read().splitlines() if line))
    except FileNotFoundError:
        return []


def _missing(images: Dict[str, str]) -> List[str]:
    """Those that containerd has not, or of another digest."""
    lines = (line.split() for line in _ctr("ls").splitlines()[1:])
    there = {words[0]: words[2] for words in lines if len(words) > 2}
    return [name for name, digest in images.items() if name not in there or digest not in ("", there[name])]


def _ctr(*words: str) -> str:
    argv = ["ctr", "--namespace", "k8s.io", "images", *words]
    ended = subprocess.run(argv, check=False, capture_output=True, text=True)
    if ended.returncode:
        raise OSError(f"ctr images {' '.join(words)}: {ended.stderr.strip() or ended.stdout.strip()}")
    return ended.stdout


def _digest(path: str) -> str:
    """SHA-256 of a file; "" where there is none."""
    digest = hashlib.sha256()
    try:
        with open(path, "rb") as file:
            for block in iter(lambda: file.read(BLOCK), b""):
                digest.update(block)
    except OSError:
        return ""
    return digest.hexdigest()


def main() -> int:
    """Exit code 1: something could not be done; the last line of standard error says what."""
    try:
        told = Put(json.load(sys.stdin), "--check" in sys.argv).run()
    except subprocess.CalledProcessError as error:
        print(f"{' '.join(error.cmd)}: {error.stderr.strip()}", file=sys.stderr)
        return 1
    except (OSError, ValueError, tarfile.TarError) as error:
        print(error, file=sys.stderr)
        return 1
    print(json.dumps(told))
    return 0


if __name__ == "__main__":
    sys.exit(main())
