"""Which cluster the official client's configuration names, and with which credentials."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import kubernetes.config
from kubernetes.client.configuration import Configuration
from kubernetes.config import ConfigException

from profiles.errors import Permanent

kubernetes_config = cast(Any, kubernetes.config)
"""Its loaders carry no types."""


def configuration_of(context: str, environ: Mapping[str, str] = os.environ) -> Configuration:
    """What the official client reads: a kubeconfig's context, or the service account of the pod we run in.

    Args:
        context: name of the context; "" for the current one, or in-cluster where there is no kubeconfig.
        environ: where KUBECONFIG is looked up.

    Raises:
        Permanent: there is neither, or it is broken.
    """
    configuration = Configuration()
    file = environ.get("KUBECONFIG") or str(Path("~/.kube/config").expanduser())
    try:
        if context or environ.get("KUBECONFIG") or Path(file).exists():
            kubernetes_config.load_kube_config(file, context or None, configuration, persist_config=False)
        else:
            kubernetes_config.load_incluster_config(configuration)
    except (ConfigException, OSError, ValueError) as error:
        raise Permanent(
            f"no access to a Kubernetes cluster ({error}): set KUBECONFIG, or `context` in the cluster profile"
        ) from error
    return configuration
