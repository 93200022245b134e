"""The fields of artifacts, as tables: what goes in, what is handed over, what comes out."""

from __future__ import annotations

from tasks.embedded.engine.shapes import FLAG, PATH, TEXT, WHOLE, Fields, Shape

_STORES = dict.fromkeys(
    ("s3", "gcs", "http", "git", "hdfs", "oss", "azure", "artifactory", "plugin"),
    "there is no artifact store here; fetch it in a step and hand it on, or use raw",
)
_REFUSED = {
    **_STORES,
    "artifactGC": "artifacts go with their workflow",
    "deleted": "Argo writes it",
    "archiveLogs": "logs are kept with their pods",
}
_ARCHIVE = Fields(
    {"none": Fields({}), "tar": Fields({"compressionLevel": WHOLE}), "zip": Fields({})}, one_of=("none", "tar", "zip")
)
_RAW = Fields({"data": TEXT}, required=("data",))
_COMMON: dict[str, Shape] = {"name": TEXT, "optional": FLAG}
ARGUMENT = Fields(
    {**_COMMON, "from": TEXT, "fromExpression": TEXT, "raw": _RAW, "subPath": TEXT, "archive": _ARCHIVE},
    required=("name",),
    refused={**_REFUSED, "path": "the called template says where it lies", "globalName": "only outputs have one"},
)
INPUT = Fields(
    {**_COMMON, "path": PATH, "mode": WHOLE, "recurseMode": FLAG, "raw": _RAW, "archive": _ARCHIVE},
    required=("name",),
    refused={
        **_REFUSED,
        "from": "only arguments and outputs have one",
        "fromExpression": "only arguments and outputs have one",
        "globalName": "only outputs have one",
        "subPath": "give it with the argument",
    },
)
OUTPUT = Fields(
    {
        **_COMMON,
        "path": PATH,
        "from": TEXT,
        "fromExpression": TEXT,
        "subPath": TEXT,
        "globalName": TEXT,
        "archive": _ARCHIVE,
    },
    required=("name",),
    refused={
        **_REFUSED,
        "raw": "only inputs and arguments have one",
        "mode": "set it where it is used",
        "recurseMode": "set it where it is used",
    },
)
