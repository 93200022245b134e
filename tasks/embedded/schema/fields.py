"""The fields of pods and JobSets that the embedded cluster knows, as data.

A schema is a dictionary of field -> kind. A kind is a name (`text`, `whole`, `flag`, `number`, `quantity`, `labels`,
`texts`, `free`), another schema, or a list with one schema for a list of objects. Fields that Kubernetes knows and we
do not run are listed in `NOT_RUN` so that the refusal can say so.
"""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]

METADATA: Schema = {
    "name": "text",
    "generateName": "text",
    "namespace": "text",
    "labels": "labels",
    "annotations": "labels",
    # Written by a cluster; accepted so that an object that was read can be applied again.
    "uid": "text",
    "resourceVersion": "text",
    "generation": "whole",
    "creationTimestamp": "free",
    "deletionTimestamp": "text",
    "deletionGracePeriodSeconds": "whole",
    "managedFields": "free",
    "ownerReferences": "free",
    "finalizers": "texts",
}
_KEY_REFERENCE: Schema = {"name": "text", "key": "text", "optional": "flag"}
_FIELD_REFERENCE: Schema = {"apiVersion": "text", "fieldPath": "field-path"}
ENV: Schema = {
    "name": "text!",
    "value": "text",
    "valueFrom": {"fieldRef": _FIELD_REFERENCE, "secretKeyRef": _KEY_REFERENCE, "configMapKeyRef": _KEY_REFERENCE},
}
_SOURCE: Schema = {"name": "text", "optional": "flag"}
RESOURCES: Schema = {"requests": "quantities", "limits": "quantities"}
CONTAINER: Schema = {
    "name": "text!",
    "image": "text!",
    "command": "texts",
    "args": "texts",
    "workingDir": "text",
    "env": [ENV],
    "envFrom": [{"prefix": "text", "secretRef": _SOURCE, "configMapRef": _SOURCE}],
    "resources": RESOURCES,
    "volumeMounts": [{"name": "text!", "mountPath": "path!", "readOnly": "flag", "subPath": "inner-path"}],
    "ports": [{"name": "text", "containerPort": "whole", "protocol": "text"}],
    "imagePullPolicy": "text",
    "terminationMessagePath": "path",
    "terminationMessagePolicy": "text",
    # Accepted without effect: processes run as the user who started the cluster.
    "securityContext": "free",
}
_SELECTOR: Schema = {
    "matchLabels": "labels",
    "matchExpressions": [{"key": "text!", "operator": "text!", "values": "texts"}],
}
_NODE_TERM: Schema = {
    "matchExpressions": [{"key": "text!", "operator": "text!", "values": "texts"}],
    "matchFields": [{"key": "text!", "operator": "text!", "values": "texts"}],
}
_POD_TERM: Schema = {"labelSelector": _SELECTOR, "topologyKey": "text!"}
_POD_AFFINITY: Schema = {
    "requiredDuringSchedulingIgnoredDuringExecution": [_POD_TERM],
    "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": "whole", "podAffinityTerm": _POD_TERM}],
}
AFFINITY: Schema = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [_NODE_TERM]},
        "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": "whole", "preference": _NODE_TERM}],
    },
    "podAffinity": _POD_AFFINITY,
    "podAntiAffinity": _POD_AFFINITY,
}
_ITEMS = [{"key": "text!", "path": "inner-path!", "mode": "whole"}]
_SECRET: Schema = {"secretName": "text", "items": _ITEMS, "defaultMode": "whole", "optional": "flag"}
_CONFIG: Schema = {"name": "text", "items": _ITEMS, "defaultMode": "whole", "optional": "flag"}
_DOWNWARD: Schema = {
    "items": [{"path": "inner-path!", "fieldRef": _FIELD_REFERENCE, "mode": "whole"}],
    "defaultMode": "whole",
}
VOLUME: Schema = {
    "name": "text!",
    "emptyDir": {"medium": "text", "sizeLimit": "quantity"},
    "hostPath": {"path": "path!", "type": "text"},
    "persistentVolumeClaim": {"claimName": "text!", "readOnly": "flag"},
    "ephemeral": {
        "volumeClaimTemplate": {
            "metadata": {"labels": "labels", "annotations": "labels"},
            "spec": {"accessModes": "texts", "storageClassName": "text", "resources": RESOURCES, "volumeMode": "text"},
        }
    },
    "secret": _SECRET,
    "configMap": _CONFIG,
    "downwardAPI": _DOWNWARD,
    "projected": {
        "sources": [
            {
                "secret": {"name": "text!", "items": _ITEMS, "optional": "flag"},
                "configMap": {"name": "text!", "items": _ITEMS, "optional": "flag"},
                "downwardAPI": {"items": _DOWNWARD["items"]},
            }
        ],
        "defaultMode": "whole",
    },
}
TOLERATION: Schema = {
    "key": "text",
    "operator": "text",
    "value": "text",
    "effect": "text",
    "tolerationSeconds": "whole",
}
POD_SPEC: Schema = {
    "containers": [CONTAINER],
    "initContainers": [CONTAINER],
    "volumes": [VOLUME],
    "restartPolicy": "text",
    "terminationGracePeriodSeconds": "whole",
    "activeDeadlineSeconds": "whole",
    "nodeSelector": "labels",
    "nodeName": "text",
    "affinity": AFFINITY,
    "tolerations": [TOLERATION],
    "hostname": "text",
    "subdomain": "text",
    "priorityClassName": "text",
    "priority": "whole",
    # Accepted without effect: there is one user, one network and no image registry.
    "serviceAccountName": "text",
    "serviceAccount": "text",
    "automountServiceAccountToken": "flag",
    "securityContext": "free",
    "imagePullSecrets": "free",
    "schedulerName": "text",
    "dnsPolicy": "text",
    "dnsConfig": "free",
    "hostNetwork": "flag",
    "hostPID": "flag",
    "hostIPC": "flag",
    "enableServiceLinks": "flag",
    "setHostnameAsFQDN": "flag",
    "preemptionPolicy": "text",
    "shareProcessNamespace": "flag",
    "hostAliases": [{"ip": "text!", "hostnames": "texts"}],
}
POD_TEMPLATE: Schema = {"metadata": METADATA, "spec": POD_SPEC}
JOB_SPEC: Schema = {
    "parallelism": "whole",
    "completions": "whole",
    "completionMode": "text",
    "backoffLimit": "whole",
    "activeDeadlineSeconds": "whole",
    "ttlSecondsAfterFinished": "whole",
    "podReplacementPolicy": "text",
    "podFailurePolicy": {
        "rules": [
            {
                "action": "text!",
                "onExitCodes": {"containerName": "text", "operator": "text!", "values": "numbers"},
                "onPodConditions": [{"type": "text!", "status": "text"}],
            }
        ]
    },
    "template": POD_TEMPLATE,
}
JOBSET_SPEC: Schema = {
    "replicatedJobs": [
        {
            "name": "text!",
            "groupName": "text",
            "replicas": "whole",
            "template": {"metadata": METADATA, "spec": JOB_SPEC},
        }
    ],
    "successPolicy": {"operator": "text", "targetReplicatedJobs": "texts"},
    "failurePolicy": {"maxRestarts": "whole", "restartStrategy": "text"},
    "startupPolicy": {"startupPolicyOrder": "text"},
    "network": {"enableDNSHostnames": "flag", "subdomain": "text", "publishNotReadyAddresses": "flag"},
    "coordinator": {"replicatedJob": "text!", "jobIndex": "whole", "podIndex": "whole"},
    "suspend": "flag",
    "ttlSecondsAfterFinished": "whole",
}
OBJECT: Schema = {"apiVersion": "text", "kind": "text", "metadata": METADATA, "status": "free"}
KINDS: dict[str, Schema] = {
    "Pod": {**OBJECT, "spec": POD_SPEC},
    "JobSet": {**OBJECT, "spec": JOBSET_SPEC},
    "Secret": {**OBJECT, "type": "text", "immutable": "flag", "data": "labels", "stringData": "labels"},
    "ConfigMap": {**OBJECT, "immutable": "flag", "data": "labels", "binaryData": "labels"},
    "PersistentVolumeClaim": {
        **OBJECT,
        "spec": {
            "accessModes": "texts",
            "resources": RESOURCES,
            "storageClassName": "text",
            "volumeMode": "text",
            "volumeName": "text",
        },
    },
    "Node": {
        **OBJECT,
        "spec": {
            "unschedulable": "flag",
            "taints": [{"key": "text!", "value": "text", "effect": "text!", "timeAdded": "text"}],
            "podCIDR": "text",
            "podCIDRs": "texts",
            "providerID": "text",
        },
    },
}

NOT_RUN = frozenset(
    {
        "lifecycle",
        "livenessProbe",
        "readinessProbe",
        "startupProbe",
        "stdin",
        "stdinOnce",
        "tty",
        "volumeDevices",
        "subPathExpr",
        "mountPropagation",
        "recursiveReadOnly",
        "restartPolicyRules",
        "resizePolicy",
        "fileKeyRef",
        "resourceFieldRef",
        "namespaceSelector",
        "namespaces",
        "matchLabelKeys",
        "mismatchLabelKeys",
        "topologySpreadConstraints",
        "ephemeralContainers",
        "readinessGates",
        "runtimeClassName",
        "overhead",
        "os",
        "resourceClaims",
        "schedulingGates",
        "hostUsers",
        "nfs",
        "iscsi",
        "csi",
        "image",
        "selector",
        "manualSelector",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
        "successPolicy",
        "managedBy",
        "dependsOn",
        "rules",
        "volumeClaimPolicies",
        "serviceAccountToken",
        "clusterTrustBundle",
        "claims",
        "hostIP",
        "hostPort",
        "dataSource",
    }
)
