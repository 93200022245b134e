"""Which cluster the official client's configuration names, and with which credentials."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import kubernetes.config
import yaml
from kubernetes.client.configuration import Configuration
from kubernetes.config import ConfigException

from profiles.errors import Permanent, ProfileError
from profiles.values import did_you_mean

kubernetes_config = cast(Any, kubernetes.config)
"""Its loaders carry no types."""


def configuration_of(context: str, environ: Mapping[str, str] = os.environ, kubeconfig: str = "") -> Configuration:
    """What the official client reads: a kubeconfig's context, or the service account of the pod we run in.

    "" is the current context, or in-cluster where there is no kubeconfig; `kubeconfig` names another file than the
    environment does.

    Raises:
        Permanent: there is neither, or it is broken.
    """
    configuration = Configuration()
    file = kubeconfig or _kubeconfig(environ)
    try:
        if kubeconfig or context or environ.get("KUBECONFIG") or Path(file).exists():
            kubernetes_config.load_kube_config(file, context or None, configuration, persist_config=False)
        else:
            kubernetes_config.load_incluster_config(configuration)
    except (ConfigException, OSError, ValueError, yaml.YAMLError) as error:
        raise Permanent(
            f"no access to a Kubernetes cluster ({error}): set KUBECONFIG, or `context` in the cluster profile"
        ) from error
    return configuration


def _kubeconfig(environ: Mapping[str, str]) -> str:
    try:
        return environ.get("KUBECONFIG") or str(Path("~/.kube/config").expanduser())
    except RuntimeError:
        return "~/.kube/config"  # whoever has no home has no such file


def context_of(context: str, environ: Mapping[str, str] = os.environ) -> tuple[str, str]:
    """Name of a context and the namespace it stands in; ("", "default") where there is no kubeconfig.

    "" is the current one.

    Raises:
        ProfileError: there is no kubeconfig that can be read, or it has no such context.
    """
    file = _kubeconfig(environ)
    if not context and not environ.get("KUBECONFIG") and not Path(file).exists():
        return "", "default"
    try:
        contexts, current = kubernetes_config.list_kube_config_contexts(config_file=file)
    except (ConfigException, OSError, ValueError, yaml.YAMLError) as error:
        raise ProfileError("KUBECONFIG", f"names no kubeconfig that can be read ({error})") from error
    known: dict[str, dict[str, Any]] = {item["name"]: item for item in contexts}
    found: dict[str, Any] | None = known.get(context) if context else current
    if found is None:
        raise ProfileError("--context", f'the kubeconfig has no context "{context}"' + did_you_mean(context, known))
    inside = cast("dict[str, Any]", found.get("context") or {})
    return str(found["name"]), str(inside.get("namespace") or "default")
