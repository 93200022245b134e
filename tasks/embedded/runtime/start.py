"""Everything between a container's specification and its first process: image, variables, folders, output."""

from __future__ import annotations

import json
import os

from tasks.embedded import spec as embedded_spec
from tasks.embedded.engine.kube import pods
from tasks.embedded.layout import SCRIPT_PATH, SHARED_MEMORY, folder_variable, output_values
from tasks.embedded.objects import OUTPUTS_ANNOTATION, entries, section
from tasks.embedded.runtime import artifacts
from tasks.embedded.runtime.artifacts import Capture
from tasks.embedded.runtime.container import Launch, start
from tasks.embedded.runtime.environment import MINIMAL, MissingReferenceError, Pod, expand, variables
from tasks.embedded.runtime.mounts import TMP, Host, Mount, View
from tasks.embedded.runtime.processes import CLUSTER_VARIABLE, CONTAINER_VARIABLE, POD_VARIABLE
from tasks.embedded.store.store import write_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tasks.embedded.layout import PodFolder
    from tasks.embedded.objects import Object
    from tasks.embedded.store.store import Store


class NotYetError(Exception):
    """The container cannot be started now; it waits with a reason and is tried again, as on Kubernetes."""

    def __init__(self, reasons: tuple[str, ...], message: str, retry_seconds: float) -> None:
        super().__init__(message)
        self._reasons = reasons
        self._retry_seconds = retry_seconds

    def reason_at(self, attempt: int) -> str:
        """The waiting reason at the n-th failure, counted from 1."""
        return self._reasons[min(attempt, len(self._reasons)) - 1]

    def retry_after(self, attempt: int) -> float:
        """Seconds until the next try: doubling, at most five minutes."""
        return min(300.0, self._retry_seconds * 2 ** min(attempt - 1, 20))


class ContainerLife:
    """One container in the course of its lives."""

    def __init__(self, spec: Object, *, initial: bool) -> None:
        self.spec = spec
        self.initial = initial
        self.status = pods.ContainerState(spec["name"], spec.get("image", ""))
        self.pid = 0
        self.started_at = ""
        self.start_due: float | None = 0.0
        """Monotonic time of the next start, None where none is due."""
        self.failures_to_prepare = 0
        self.capture: Capture | None = None
        self.oom_kills = 0
        """The kernel's count of kills for lack of memory when it started."""


class Starter:
    """Starts the containers of one pod."""

    def __init__(self, folder: PodFolder, pod: Object, store: Store, settings: Object, namespaces: str) -> None:
        self._folder = folder
        self._manifest = pod
        self._pod = Pod(pod, store.get)
        self._settings = settings
        self._namespaces = namespaces
        self._prepared = False

    def start(self, container: Object, restart: int, *, capture: bool) -> tuple[int, str, Capture | None]:
        """Start one life of a container.

        Returns:
            Its pid (0: there never was a process), why it could not be started ("" where it was), its captured output.

        Raises:
            NotYetError: something it needs is not there yet.
            ArtifactError: an input artifact will never be there.
        """
        found = embedded_spec.find_image(self._settings["images"], container.get("image", ""))
        if found is None:
            name = container.get("image", "")
            text = f'no image of this cluster matches "{name}"; add it to the cluster profile'
            reasons = ("ErrImagePull", "ImagePullBackOff")
            raise NotYetError(reasons, text, self._settings["image_retry_seconds"])
        try:
            self._prepare()
            own = self._variables(container, restart)
        except MissingReferenceError as error:
            raise NotYetError(("CreateContainerConfigError",), str(error), 1.0) from error
        except OSError as error:
            raise NotYetError(("ContainerCreating",), str(error), 1.0) from error
        return self._launch(container, restart, found, own, capture=capture)

    def locate(self, container: Object, restart: int) -> Callable[[str], str]:
        """What finds the host's path behind a path of the container, also after its end."""
        if self._namespaces == "none":
            return lambda path: self._in_volume(path, container) or path
        return self._view(container, restart).locate

    def outputs_of(self, run: ContainerLife) -> str | None:
        """What the main container left, as the annotation of output values says it; None where nothing is asked for."""
        annotations = section(self._manifest["metadata"], "annotations")
        kept = artifacts.output_paths(self._manifest)
        if OUTPUTS_ANNOTATION not in annotations and run.capture is None and not kept:
            return None
        locate = self.locate(run.spec, run.status.restart_count)
        result = run.capture.text() if run.capture is not None else None
        stored = artifacts.keep(self._folder.cluster, self._manifest, locate) if kept else None
        return output_values(annotations.get(OUTPUTS_ANNOTATION, ""), locate, result, stored)

    def _view(self, container: Object, restart: int) -> View:
        life = self._folder.life(container["name"], restart)
        view = View(life, Host(), root_on_disk=self._leaves_files_in_root(container))
        view.add(self._mounts(container))
        return view

    def _leaves_files_in_root(self, container: Object) -> bool:
        """Whether an output lies neither in a volume nor in /tmp nor in a folder of the host."""
        values: Mapping[str, str] = json.loads(
            section(self._manifest["metadata"], "annotations").get(OUTPUTS_ANNOTATION, "{}")
        )
        paths = [*values.values(), *artifacts.output_paths(self._manifest)]
        folders = [TMP, *(mount["mountPath"] for mount in entries(container, "volumeMounts"))]
        return any(not any(path.startswith(folder.rstrip("/") + "/") for folder in folders) for path in paths)

    def _in_main_volume(self, path: str) -> str | None:
        return self._in_volume(path, self._manifest["spec"]["containers"][0])

    def _in_volume(self, path: str, container: Object) -> str | None:
        volumes = {volume["name"]: volume for volume in entries(self._manifest["spec"], "volumes")}
        for mount in entries(container, "volumeMounts"):
            prefix = mount["mountPath"].rstrip("/") + "/"
            if path.startswith(prefix):
                return os.path.join(self._folder.source(volumes[mount["name"]], mount), path.removeprefix(prefix))
        return None

    def _prepare(self) -> None:
        if self._prepared:
            return
        self._folder.prepare(self._pod)
        artifacts.lay_out(self._folder.cluster, self._manifest, self._folder.artifacts, self._in_main_volume)
        own = os.path.join(self._folder.path, "hosts")
        if self._folder.hosts(self._manifest) == own:
            name, address = self._host_name(), self._manifest["status"]["podIP"]
            write_file(own, hosts_text([(address, [name])]).encode())
        self._prepared = True

    def _host_name(self) -> str:
        return self._manifest["spec"].get("hostname") or self._manifest["metadata"]["name"]

    def _variables(self, container: Object, restart: int) -> dict[str, str]:
        """What `$(…)` in arguments may refer to: the manifest's variables and ours, not the image's."""
        folder, name = self._folder, container["name"]
        extra = {"PRIMUS_HOSTS_FILE": folder.hosts(self._manifest), "PRIMUS_TERMINATION_LOG": folder.termination(name)}
        overrides: dict[str, str] = {}
        if os.path.exists(os.path.join(folder.path, "script")):
            extra["PRIMUS_SCRIPT"] = os.path.join(folder.path, "script")
        if self._namespaces == "none":
            extra["TMPDIR"] = os.path.join(folder.life(name, restart), "tmp")
            os.makedirs(extra["TMPDIR"], mode=0o700, exist_ok=True)
            overrides = self._folders(container)
        return variables(container, self._pod, extra, overrides)

    def _environment(self, container: Object, image: tuple[int, Object], own: Mapping[str, str]) -> dict[str, str]:
        basic = {**MINIMAL, "HOME": own.get("TMPDIR", TMP), "HOSTNAME": self._host_name()}
        basic["PATH"] = f"{embedded_spec.programs_folder(self._folder.cluster, image[0])}:{basic['PATH']}"
        uid = self._manifest["metadata"]["uid"]
        marks = {CLUSTER_VARIABLE: self._folder.cluster, POD_VARIABLE: uid, CONTAINER_VARIABLE: container["name"]}
        return {**basic, **image[1]["environment"], **own, **marks}

    def _folders(self, container: Object) -> dict[str, str]:
        volumes = {volume["name"]: volume for volume in entries(self._manifest["spec"], "volumes")}
        return {
            folder_variable(mount["name"]): self._folder.source(volumes[mount["name"]], mount)
            for mount in entries(container, "volumeMounts")
            if mount["mountPath"].rstrip("/") != SHARED_MEMORY
        }

    def _launch(
        self, container: Object, restart: int, image: tuple[int, Object], own: Mapping[str, str], *, capture: bool
    ) -> tuple[int, str, Capture | None]:
        folder, name = self._folder, container["name"]
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC
        log = os.open(folder.log(name), flags | os.O_APPEND, 0o600)
        os.close(os.open(folder.termination(name), flags | os.O_TRUNC, 0o600))
        captured = Capture(os.dup(log)) if capture else None
        stdout = captured.writing if captured else log
        try:
            argv = embedded_spec.host_argv(image[1], self._argv(container, own), self._own_folders(container))
            launch = Launch(
                argv,
                self._environment(container, image, own),
                working_folder=self._working_folder(container, restart),
                view=None if self._namespaces == "none" else self._view(container, restart),
                user_namespace=self._namespaces == "user",
                host_name=self._host_name(),
                stdout=stdout,
                stderr=log,
            )
            pid, error = start(launch)
        except FileNotFoundError as error:
            return 0, str(error), captured
        finally:
            os.close(log)
            if captured:
                os.close(captured.writing)
        return pid, error, captured

    def _argv(self, container: Object, environment: Mapping[str, str]) -> list[str]:
        words = [*entries(container, "command"), *entries(container, "args")]
        argv = [expand(str(word), environment) for word in words]
        if self._namespaces == "none" and SCRIPT_PATH in argv:
            argv[argv.index(SCRIPT_PATH)] = environment.get("PRIMUS_SCRIPT", SCRIPT_PATH)
        return argv

    def _own_folders(self, container: Object) -> list[str]:
        mounts = [mount["mountPath"] for mount in entries(container, "volumeMounts")]
        folders = self._folders(container).values() if self._namespaces == "none" else ()
        return [*mounts, *folders, os.path.dirname(SCRIPT_PATH)]

    def _working_folder(self, container: Object, restart: int) -> str:
        life = self._folder.life(container["name"], restart)
        private = os.path.join(life, "tmp") if self._namespaces == "none" else "/"
        return container.get("workingDir") or private

    def _mounts(self, container: Object) -> list[Mount]:
        found = embedded_spec.find_image(self._settings["images"], container.get("image", ""))
        shown = embedded_spec.shown_folders(found[1]) if found else []
        cluster = self._folder.cluster
        if cluster.startswith(TMP + "/") and not any(cluster.startswith(folder + "/") for folder in shown):
            shown.append(cluster)
        found = [*(Mount(path, path) for path in shown), *self._folder.mounts(container, self._manifest)]
        if container["name"] == self._manifest["spec"]["containers"][0]["name"]:
            found += artifacts.mounts(self._manifest, self._folder.artifacts, self._in_main_volume)
        return found


def hosts_text(entries: list[tuple[str, list[str]]]) -> str:
    """A hosts file: this machine's own lines, then an address and its names a line."""
    try:
        with open("/etc/hosts", encoding="utf-8", errors="replace") as file:
            own = file.read().rstrip("\n")
    except OSError:
        own = "127.0.0.1 localhost"
    return "\n".join([own, *(f"{address}\t{' '.join(names)}" for address, names in entries)]) + "\n"


def oom_kills() -> int:
    """How many processes the kernel killed for lack of memory since boot, 0 where it does not say."""
    try:
        with open("/proc/vmstat", "rb") as file:
            content = file.read()
    except OSError:
        return 0
    at = content.find(b"\noom_kill ")
    return int(content[at + 10 : content.index(b"\n", at + 10)]) if at >= 0 else 0
