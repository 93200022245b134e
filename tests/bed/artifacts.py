"""The bed's artifact repository: an S3 server of moto's beside the control plane. What it holds goes when it ends.

It asks nobody who he is; the keys are there because Argo wants to be told some, from a Secret of the pod's namespace.
"""

from __future__ import annotations

import sys
import threading
import urllib.request

from tests.bed.api import Manifest
from tests.bed.layout import ROOT
from tests.bed.options import NAMESPACE, Options
from tests.bed.plane import healthy
from tests.bed.processes import Processes, Program

NAME = "artifacts"
PORT = 9000
BUCKET = "artifacts"
SECRET = "artifact-keys"


def address(options: Options) -> str:
    """Host and port, as pods and the workflow-controller reach it."""
    return f"{options.plane}:{PORT}"


def repository(options: Options) -> Manifest:
    """What the workflow-controller is told about it: where every artifact goes that names no place of its own."""
    keys = {f"{key}Secret": {"name": SECRET, "key": key} for key in ("accessKey", "secretKey")}
    return {"s3": {"endpoint": address(options), "insecure": True, "bucket": BUCKET, "region": "us-east-1", **keys}}


def keys(namespace: str) -> Manifest:
    """The Secret without which a pod with artifacts does not start in `namespace`."""
    about = {"name": SECRET, "namespace": namespace}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": about,
        "stringData": {"accessKey": "bed", "secretKey": "bed"},
    }


def start(options: Options, processes: Processes) -> None:
    """The server; it needs a second."""
    command = [sys.executable, "-m", "tests.bed.artifacts", options.plane]
    processes.start(Program(NAME, command, NAMESPACE, f"plane/{NAME}", {"PYTHONPATH": str(ROOT)}))


def ready(options: Options) -> bool:
    """Whether it shows its bucket."""
    return healthy(f"http://{address(options)}/{BUCKET}?max-keys=1")


def main(host: str) -> None:
    """Serve until killed."""
    from moto.server import ThreadedMotoServer

    ThreadedMotoServer(host, PORT).start()
    bucket = urllib.request.Request(f"http://{host}:{PORT}/{BUCKET}", method="PUT")
    urllib.request.build_opener(urllib.request.ProxyHandler({})).open(bucket, timeout=20).close()
    threading.Event().wait()


if __name__ == "__main__":
    main(sys.argv[1])
