"""The environment and the arguments of a container, exactly as the kubelet would give them. Pure: no I/O, no clock."""

from __future__ import annotations

from base64 import b64decode

from tasks.embedded.objects import entries, section

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tasks.embedded.objects import Object


MINIMAL = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "LANG": "C.UTF-8",
    "TZ": "UTC",
}
"""What a container has even if neither image nor manifest says so; HOME and HOSTNAME come on top."""


class MissingReferenceError(Exception):
    """A required Secret, ConfigMap or key does not exist (yet): the container waits, as on Kubernetes."""


class Pod:
    """Values to which variables of a pod may refer; `read` gets an object by kind and name (None: there is none)."""

    def __init__(self, manifest: Object, read: Callable[[str, str], Object | None]) -> None:
        self.manifest = manifest
        self.read = read

    def field(self, path: str) -> str:
        """The value of a downward API field; a missing label or annotation is ""."""
        metadata, spec = self.manifest["metadata"], self.manifest["spec"]
        status = section(self.manifest, "status")
        head, bracket, rest = path.partition("[")
        if bracket:
            group = section(metadata, head.removeprefix("metadata."))
            return group.get(rest.rstrip("]").strip("'\""), "")
        plain = {
            "metadata.name": metadata["name"],
            "metadata.namespace": metadata.get("namespace", "default"),
            "metadata.uid": metadata.get("uid", ""),
            "spec.nodeName": spec.get("nodeName", ""),
            "spec.serviceAccountName": spec.get("serviceAccountName", "default"),
            "status.podIP": status.get("podIP", ""),
            "status.podIPs": status.get("podIP", ""),
            "status.hostIP": "127.0.0.1",
        }
        if path in plain:
            return plain[path]
        group = section(metadata, path.removeprefix("metadata."))
        return "\n".join(f'{key}="{value}"' for key, value in sorted(group.items()))

    def keys(self, kind: str, name: str) -> Mapping[str, bytes] | None:
        """Content of a Secret or ConfigMap, None where it does not exist."""
        found = self.read(kind, name)
        return None if found is None else content_of(found)


def content_of(manifest: Object) -> dict[str, bytes]:
    """Key to bytes of a Secret (`data` is base64, `stringData` wins) or ConfigMap (`data` is text)."""
    encoded = section(manifest, "data" if manifest["kind"] == "Secret" else "binaryData")
    plain = section(manifest, "stringData" if manifest["kind"] == "Secret" else "data")
    result = {key: b64decode(value) for key, value in encoded.items()}
    return result | {key: str(value).encode() for key, value in plain.items()}


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Kubernetes' `$(NAME)`: a known name is replaced, an unknown one left as it stands, `$$` means one `$`."""
    pieces: list[str] = []
    done = at = 0
    while at < len(text):
        if text[at] != "$" or at + 1 == len(text):
            at += 1
            continue
        pieces.append(text[done:at])
        following = text[at + 1]
        end = text.find(")", at + 2) if following == "(" else -1
        if end >= 0:
            name = text[at + 2 : end]
            pieces.append(variables.get(name, f"$({name})"))
            at = end + 1
        else:
            pieces.append("$" if following == "$" else "$" + following)
            at += 2
        done = at
    return "".join(pieces) + text[done:]


def variables(container: Object, pod: Pod, extra: Mapping[str, str], overrides: Mapping[str, str]) -> dict[str, str]:
    """The variables of the manifest, in order: `envFrom`, then `env`, each seeing the ones before it.

    Args:
        container: the container's specification.
        pod: what `valueFrom` refers to.
        extra: variables of this cluster, visible to `$(…)` from the first entry on.
        overrides: replace the value of an entry that the manifest has (folders where there are no mounts).

    Raises:
        MissingReferenceError: a Secret, ConfigMap or key that is not optional does not exist.
    """
    result = dict(extra)
    for source in entries(container, "envFrom"):
        result |= _whole(source, pod)
    for entry in entries(container, "env"):
        name = entry["name"]
        if name in overrides:
            result[name] = overrides[name]
        elif "valueFrom" in entry:
            value = _value_from(entry["valueFrom"], pod)
            if value is not None:
                result[name] = value
        else:
            result[name] = expand(str(entry.get("value") or ""), result)
    return result


def _whole(source: Object, pod: Pod) -> dict[str, str]:
    kind, reference = (
        ("Secret", source["secretRef"]) if "secretRef" in source else ("ConfigMap", source["configMapRef"])
    )
    content = pod.keys(kind, reference["name"])
    if content is None:
        if reference.get("optional"):
            return {}
        raise MissingReferenceError(f'{kind.lower()} "{reference["name"]}" not found')
    return {source.get("prefix", "") + key: value.decode() for key, value in content.items()}


def _value_from(source: Object, pod: Pod) -> str | None:
    if "fieldRef" in source:
        return pod.field(source["fieldRef"]["fieldPath"])
    kind, reference = (
        ("Secret", source["secretKeyRef"]) if "secretKeyRef" in source else ("ConfigMap", source["configMapKeyRef"])
    )
    content = pod.keys(kind, reference["name"])
    if content is not None and reference["key"] in content:
        return content[reference["key"]].decode()
    if reference.get("optional"):
        return None
    what = f'{kind.lower()} "{reference["name"]}" not found'
    raise MissingReferenceError(
        what if content is None else f"couldn't find key {reference['key']} in {kind} {reference['name']}"
    )
