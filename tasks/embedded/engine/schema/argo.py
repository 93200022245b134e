"""The fields of a Workflow and its artifacts that run here, as tables, and what to do instead of those that do not."""

from __future__ import annotations

from tasks.embedded.engine.schema.pod import (
    AFFINITY,
    CONTAINER,
    INIT_CONTAINER,
    POD_SECURITY,
    SCRIPT,
    TOLERATION,
    VOLUME,
)
from tasks.embedded.engine.schema.shapes import (
    ANYTHING,
    FLAG,
    PATH,
    TEXT,
    TEXT_MAP,
    TEXT_OR_NUMBER,
    TEXTS,
    VALUE,
    WHOLE,
    Fields,
    ListShape,
    MapShape,
    Scalar,
    Shape,
)

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


RETRY_POLICIES = ("Always", "OnError", "OnFailure", "OnTransientError")
"""What they retry stands in `engine.argo.retries.POLICIES`."""
_FILES = "there is no artifact store here; artifacts lie in the cluster's own folder"
_TEMPLATES = "put the template into this workflow"
_LOCKS = (
    "mutexes and semaphores are not kept, so workflows that run at the same time would not wait for each other; "
    "within one workflow parallelism limits what runs at once"
)

_OUTPUT_SOURCE = {"path": PATH, "default": VALUE, "parameter": TEXT, "jsonPath": TEXT}
_ARGUMENT = Fields(
    {"name": TEXT, "value": VALUE, "description": TEXT, "enum": ListShape(VALUE), "default": VALUE},
    required=("name",),
    refused={"valueFrom": "give a value", "globalName": "only outputs have one"},
)
_ARGUMENTS = Fields({"parameters": ListShape(_ARGUMENT), "artifacts": ListShape(ARGUMENT)})
_INPUTS = Fields({"parameters": ListShape(_ARGUMENT), "artifacts": ListShape(INPUT)})
_OUTPUT = Fields(
    {
        "name": TEXT,
        "globalName": TEXT,
        "description": TEXT,
        "valueFrom": Fields(
            {**_OUTPUT_SOURCE, "supplied": Fields({}), "expression": TEXT},
            refused={
                "event": "there are no event sources",
                "configMapKeyRef": "read it in a step",
                "jqFilter": "use jsonPath",
            },
        ),
    },
    required=("name", "valueFrom"),
    refused={"value": "an output's value comes from valueFrom"},
)
_OUTPUTS = Fields(
    {"parameters": ListShape(_OUTPUT), "artifacts": ListShape(OUTPUT)},
    refused={"result": "it is made by itself", "exitCode": "it is made by itself"},
)
_HOOKS = MapShape(
    Fields(
        {"template": TEXT, "arguments": _ARGUMENTS, "expression": TEXT},
        required=("template",),
        refused={"templateRef": _TEMPLATES},
    )
)
_SEQUENCE = Fields({"count": TEXT_OR_NUMBER, "start": TEXT_OR_NUMBER, "end": TEXT_OR_NUMBER, "format": TEXT})
_STEP: dict[str, Shape] = {
    "name": TEXT,
    "template": TEXT,
    "arguments": _ARGUMENTS,
    "when": TEXT,
    "withItems": ListShape(ANYTHING, least=1),
    "withParam": TEXT,
    "withSequence": _SEQUENCE,
    "continueOn": Fields({"failed": FLAG, "error": FLAG}),
    "onExit": TEXT,
    "hooks": _HOOKS,
}
_REFUSED_IN_STEP = {"templateRef": _TEMPLATES, "inline": "give the template a name of its own"}
STEP = Fields(_STEP, required=("name", "template"), refused=_REFUSED_IN_STEP)
TASK = Fields(
    {**_STEP, "dependencies": TEXTS, "depends": TEXT}, required=("name", "template"), refused=_REFUSED_IN_STEP
)
_RETRY = Fields(
    {
        "limit": TEXT_OR_NUMBER,
        "retryPolicy": Scalar("text", RETRY_POLICIES),
        "expression": TEXT,
        "backoff": Fields(
            {
                "duration": TEXT_OR_NUMBER,
                "factor": TEXT_OR_NUMBER,
                "maxDuration": TEXT_OR_NUMBER,
                "cap": TEXT_OR_NUMBER,
            }
        ),
        "affinity": Fields({"nodeAntiAffinity": Fields({})}),
    }
)
_RESOURCE = Fields(
    {"action": Scalar("text", ("apply", "create")), "manifest": TEXT, "flags": TEXTS, "setOwnerReference": FLAG},
    required=("action", "manifest"),
    refused={
        "successCondition": "apply without conditions and watch the object from outside",
        "failureCondition": "apply without conditions and watch the object from outside",
        "mergeStrategy": "only apply and create are run",
        "manifestFrom": _FILES,
    },
)
_METADATA = Fields({"labels": TEXT_MAP, "annotations": TEXT_MAP})
_POD: dict[str, Shape] = {
    "nodeSelector": TEXT_MAP,
    "affinity": AFFINITY,
    "tolerations": ListShape(TOLERATION),
    "volumes": ListShape(VOLUME),
    "serviceAccountName": TEXT,
    "automountServiceAccountToken": FLAG,
    "securityContext": POD_SECURITY,
}
"""Fields that workflow and template share."""
_REFUSED_IN_POD = {
    "podSpecPatch": "write the fields into the template",
    "hostAliases": "the hosts file is the cluster's",
    "schedulerName": "there is one scheduler",
    "executor": "there is no executor",
    "synchronization": _LOCKS,
    "metrics": "read the status",
    "artifactRepositoryRef": _FILES,
}
_TEMPLATE: dict[str, Shape] = {
    **_POD,
    "name": TEXT,
    "inputs": _INPUTS,
    "outputs": _OUTPUTS,
    "container": CONTAINER,
    "script": SCRIPT,
    "resource": _RESOURCE,
    "suspend": Fields({"duration": TEXT_OR_NUMBER}),
    "dag": Fields({"tasks": ListShape(TASK, least=1), "target": TEXT, "failFast": FLAG}, required=("tasks",)),
    "steps": ListShape(ListShape(STEP, least=1), least=1),
    "retryStrategy": _RETRY,
    "activeDeadlineSeconds": TEXT_OR_NUMBER,
    "timeout": TEXT,
    "parallelism": WHOLE,
    "metadata": _METADATA,
    "initContainers": ListShape(INIT_CONTAINER),
    "priorityClassName": TEXT,
}
_REFUSED_TEMPLATE = {
    **_REFUSED_IN_POD,
    "containerSet": "use steps",
    "data": _FILES,
    "http": "call it in a container",
    "plugin": "there are no plugins",
    "daemon": "start the server inside the step that needs it",
    "sidecars": "start it inside the step that needs it",
    "pendingTimeout": "use timeout, which counts from the same moment",
    "memoize": "every step runs",
    "archiveLocation": _FILES,
    "failFast": "use dag.failFast",
    "priority": "use priorityClassName",
    "parallelismKey": _LOCKS,
    "annotations": "use metadata.annotations",
}
TEMPLATE = Fields(_TEMPLATE, refused=_REFUSED_TEMPLATE)
_DEFAULTS = {
    key: shape for key, shape in _TEMPLATE.items() if key not in ("name", "dag", "steps", "resource", "suspend")
}
_PARTIAL = Fields(CONTAINER.fields, refused=CONTAINER.refused)
_TTL = Fields({"secondsAfterCompletion": WHOLE, "secondsAfterSuccess": WHOLE, "secondsAfterFailure": WHOLE})
_POD_GC = Fields(
    {
        "strategy": Scalar(
            "text", ("OnPodCompletion", "OnPodSuccess", "OnWorkflowCompletion", "OnWorkflowSuccess", "")
        ),
        "deleteDelayDuration": TEXT,
        "labelSelector": Fields({"matchLabels": TEXT_MAP}),
    }
)
SPEC = Fields(
    {
        **_POD,
        "entrypoint": TEXT,
        "templates": ListShape(TEMPLATE, least=1),
        "templateDefaults": Fields({**_DEFAULTS, "container": _PARTIAL, "script": _PARTIAL}, refused=_REFUSED_TEMPLATE),
        "arguments": _ARGUMENTS,
        "onExit": TEXT,
        "hooks": _HOOKS,
        "parallelism": WHOLE,
        "activeDeadlineSeconds": WHOLE,
        "shutdown": Scalar("text", ("Stop", "Terminate", "")),
        "suspend": FLAG,
        "ttlStrategy": _TTL,
        "podGC": _POD_GC,
        "podMetadata": _METADATA,
        "workflowMetadata": Fields(
            {"labels": TEXT_MAP, "annotations": TEXT_MAP}, refused={"labelsFrom": "write the labels out"}
        ),
        "podPriorityClassName": TEXT,
        "priority": WHOLE,
        "retryStrategy": _RETRY,
        "imagePullSecrets": ListShape(Fields({"name": TEXT}, required=("name",))),
        "archiveLogs": FLAG,
    },
    required=("entrypoint", "templates"),
    refused={
        **_REFUSED_IN_POD,
        "workflowTemplateRef": _TEMPLATES,
        "volumeClaimTemplates": "create the claim beforehand and name it in volumes",
        "volumeClaimGC": "claims stay",
        "artifactGC": _FILES,
        "dnsConfig": "the machine's own is used",
        "dnsPolicy": "the machine's own is used",
        "hostNetwork": "processes here are always on the host's network",
        "podDisruptionBudget": "nothing evicts pods here",
        "ttlSecondsAfterFinished": "use ttlStrategy",
        "priorityClassName": "use podPriorityClassName",
    },
)
WORKFLOW = Fields(
    {
        "apiVersion": Scalar("text", ("argoproj.io/v1alpha1",)),
        "kind": Scalar("text", ("Workflow",)),
        "metadata": MapShape(ANYTHING),
        "spec": SPEC,
        "status": MapShape(ANYTHING),
    },
    required=("apiVersion", "kind", "metadata", "spec"),
)
