"""The parts of pods that templates may carry, as tables: containers, volumes, placement."""

from __future__ import annotations

from tasks.embedded.engine.schema.shapes import (
    FIELD_PATH,
    FLAG,
    INNER_PATH,
    PATH,
    QUANTITY,
    TEXT,
    TEXT_MAP,
    TEXTS,
    WHOLE,
    Fields,
    ListShape,
    MapShape,
    Scalar,
    Shape,
)

_PROBE = "steps run to their end, nobody probes them"
_SHARED = "containers here are processes of one machine"
_KEY_OF = Fields({"name": TEXT, "key": TEXT, "optional": FLAG}, required=("name", "key"))
_ENVIRONMENT = Fields(
    {
        "name": TEXT,
        "value": TEXT,
        "valueFrom": Fields(
            {
                "fieldRef": Fields({"fieldPath": FIELD_PATH, "apiVersion": TEXT}, required=("fieldPath",)),
                "secretKeyRef": _KEY_OF,
                "configMapKeyRef": _KEY_OF,
            },
            refused={"resourceFieldRef": "give the number as a value", "fileKeyRef": "read the file in the program"},
            one_of=("fieldRef", "secretKeyRef", "configMapKeyRef"),
        ),
    },
    required=("name",),
)
_SOURCE = Fields({"name": TEXT, "optional": FLAG}, required=("name",))
_ENVIRONMENT_FROM = Fields(
    {"prefix": TEXT, "secretRef": _SOURCE, "configMapRef": _SOURCE}, one_of=("secretRef", "configMapRef")
)
_RESOURCES = Fields(
    {"limits": MapShape(QUANTITY), "requests": MapShape(QUANTITY)},
    refused={"claims": "ask for devices by limits"},
)
_MOUNT = Fields(
    {"name": TEXT, "mountPath": PATH, "subPath": INNER_PATH, "readOnly": FLAG},
    required=("name", "mountPath"),
    refused={"subPathExpr": "use subPath", "mountPropagation": _SHARED, "recursiveReadOnly": "use readOnly"},
)
_PORT = Fields(
    {"name": TEXT, "containerPort": WHOLE, "protocol": TEXT}, refused={"hostPort": _SHARED, "hostIP": _SHARED}
)
_SECURITY: dict[str, Shape] = {
    "runAsUser": WHOLE,
    "runAsGroup": WHOLE,
    "runAsNonRoot": FLAG,
    "seccompProfile": Fields({"type": TEXT, "localhostProfile": TEXT}),
}
CONTAINER_SECURITY = Fields(
    {
        **_SECURITY,
        "allowPrivilegeEscalation": FLAG,
        "privileged": FLAG,
        "readOnlyRootFilesystem": FLAG,
        "capabilities": Fields({"add": TEXTS, "drop": TEXTS}),
    }
)
_SYSCTL = Fields(
    # Pods share this machine's network, and its own setting holds; any other sysctl would be a promise not kept.
    {"name": Scalar("text", ("net.ipv4.ping_group_range",)), "value": TEXT},
    required=("name", "value"),
)
POD_SECURITY = Fields(
    {
        **_SECURITY,
        "fsGroup": WHOLE,
        "fsGroupChangePolicy": TEXT,
        "supplementalGroups": ListShape(WHOLE),
        "sysctls": ListShape(_SYSCTL),
    },
)
_CONTAINER: dict[str, Shape] = {
    "name": TEXT,
    "image": TEXT,
    "imagePullPolicy": Scalar("text", ("Always", "IfNotPresent", "Never")),
    "command": TEXTS,
    "args": TEXTS,
    "env": ListShape(_ENVIRONMENT),
    "envFrom": ListShape(_ENVIRONMENT_FROM),
    "workingDir": TEXT,
    "resources": _RESOURCES,
    "volumeMounts": ListShape(_MOUNT),
    "ports": ListShape(_PORT),
    "securityContext": CONTAINER_SECURITY,
    "terminationMessagePath": PATH,
    "terminationMessagePolicy": Scalar("text", ("File", "FallbackToLogsOnError")),
}
_REFUSED_IN_CONTAINER = {
    "lifecycle": "do it inside the command",
    "livenessProbe": _PROBE,
    "readinessProbe": _PROBE,
    "startupProbe": _PROBE,
    "stdin": "nobody types into a step",
    "stdinOnce": "nobody types into a step",
    "tty": "nobody types into a step",
    "volumeDevices": "mount a volume",
    "resizePolicy": _SHARED,
    "restartPolicy": "use retryStrategy",
}
CONTAINER = Fields(_CONTAINER, required=("image", "command"), refused=_REFUSED_IN_CONTAINER)
INIT_CONTAINER = Fields(
    {**_CONTAINER, "mirrorVolumeMounts": FLAG}, required=("name", "image", "command"), refused=_REFUSED_IN_CONTAINER
)
SCRIPT = Fields({**_CONTAINER, "source": TEXT}, required=("image", "command", "source"), refused=_REFUSED_IN_CONTAINER)

_ITEMS = ListShape(Fields({"key": TEXT, "path": INNER_PATH, "mode": WHOLE}, required=("key", "path")))
_FILE = Fields(
    {
        "path": INNER_PATH,
        "mode": WHOLE,
        "fieldRef": Fields({"fieldPath": FIELD_PATH, "apiVersion": TEXT}, required=("fieldPath",)),
    },
    required=("path", "fieldRef"),
    refused={"resourceFieldRef": "give the number as an environment variable"},
)
_CLAIM = Fields(
    {
        "metadata": Fields({"labels": TEXT_MAP, "annotations": TEXT_MAP}),
        "spec": Fields(
            {"accessModes": TEXTS, "storageClassName": TEXT, "resources": _RESOURCES, "volumeMode": TEXT},
            required=("accessModes", "resources"),
        ),
    },
    required=("spec",),
)
_SOURCES: dict[str, Shape] = {
    "emptyDir": Fields({"medium": TEXT, "sizeLimit": QUANTITY}),
    "hostPath": Fields({"path": PATH, "type": TEXT}, required=("path",)),
    "persistentVolumeClaim": Fields({"claimName": TEXT, "readOnly": FLAG}, required=("claimName",)),
    "ephemeral": Fields({"volumeClaimTemplate": _CLAIM}, required=("volumeClaimTemplate",)),
    "secret": Fields({"secretName": TEXT, "items": _ITEMS, "defaultMode": WHOLE, "optional": FLAG}),
    "configMap": Fields({"name": TEXT, "items": _ITEMS, "defaultMode": WHOLE, "optional": FLAG}),
    "downwardAPI": Fields({"items": ListShape(_FILE), "defaultMode": WHOLE}),
}
VOLUME = Fields(
    {"name": TEXT, **_SOURCES},
    required=("name",),
    one_of=tuple(_SOURCES),
    refused=dict.fromkeys(("nfs", "csi", "projected", "image", "iscsi", "cephfs", "rbd"), "use hostPath or a claim"),
)

TOLERATION = Fields({"key": TEXT, "operator": TEXT, "value": TEXT, "effect": TEXT, "tolerationSeconds": WHOLE})
_EXPRESSION = Fields({"key": TEXT, "operator": TEXT, "values": TEXTS}, required=("key", "operator"))
_TERM = Fields({"matchExpressions": ListShape(_EXPRESSION), "matchFields": ListShape(_EXPRESSION)})
_SELECTOR = Fields({"matchLabels": TEXT_MAP, "matchExpressions": ListShape(_EXPRESSION)})
_POD_TERM = Fields(
    {"labelSelector": _SELECTOR, "topologyKey": TEXT},
    required=("topologyKey",),
    refused=dict.fromkeys(("namespaces", "namespaceSelector", "matchLabelKeys"), "there is one namespace"),
)
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_POD_AFFINITY = Fields(
    {_REQUIRED: ListShape(_POD_TERM), _PREFERRED: ListShape(Fields({"weight": WHOLE, "podAffinityTerm": _POD_TERM}))}
)
AFFINITY = Fields(
    {
        "nodeAffinity": Fields(
            {
                _REQUIRED: Fields({"nodeSelectorTerms": ListShape(_TERM)}, required=("nodeSelectorTerms",)),
                _PREFERRED: ListShape(Fields({"weight": WHOLE, "preference": _TERM})),
            }
        ),
        "podAffinity": _POD_AFFINITY,
        "podAntiAffinity": _POD_AFFINITY,
    }
)
