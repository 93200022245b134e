"""Components that can be had, installed by `primus bootstrap` on hosts: each serves, and is found where it does not."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping

import pytest

from profiles.bootstrap.inventory import ComponentChoice
from profiles.loading.load import load_cluster, load_component
from tasks.bootstrap.components import open_components
from tests.lab.commands import Commands, Json
from tests.lab.components import juicefs
from tests.lab.lab import Lab
from tests.lab.layout import FIRST
from tests.support.running.waiting import patience
from workflows.model.components import NAMESPACE
from workflows.programs.serving import main
from workflows.programs.serving.ask import Seen

ADDRESS = f"{FIRST}.64.50"
"""Of the registry's service: nodes pull by it, since they do not resolve names of services."""
PULLED_AS = f"{ADDRESS}:5000"
KUBECTL = "kubectl --kubeconfig /etc/kubernetes/admin.conf"
CHOICES = (
    ComponentChoice(name="local-folder", values={"folder": juicefs.MOUNT}),
    ComponentChoice(name="metrics-server", values={"args": ["--kubelet-insecure-tls"]}),
    ComponentChoice(name="cert-manager"),
    ComponentChoice(
        name="registry", values={"storage_class": "local-folder", "cluster_ip": ADDRESS, "pulled_as": PULLED_AS}
    ),
    ComponentChoice(name="victoria-metrics", values={"storage_class": "local-folder"}),
)
OWNERS = {"registry": 1000, "figures": 1000, "proof": 65532}
"""As whom registry, store and our own programs run; nobody gives them a folder of the nodes but the site."""
PROOF_S = patience(60.0)
BREAKS: Mapping[str, tuple[str, str]] = {
    "metrics-server": (
        "-n kube-system patch service metrics-server --type merge -p "
        """'{"spec": {"selector": {"app.kubernetes.io/name": "nobody"}}}'""",
        "APIService v1beta1.metrics.k8s.io is not available",
    ),
    "cert-manager": (
        "delete clusterrolebinding cert-manager-controller-certificates",
        "no certificate was issued",
    ),
    "registry": (
        "-n primus-registry set env deployment/registry REGISTRY_STORAGE_FILESYSTEM_ROOTDIRECTORY=/nowhere",
        "answered 500",
    ),
    "victoria-metrics": (
        "-n primus-monitoring patch statefulset victoria-metrics --type json -p "
        """'[{"op": "add", "path": "/spec/template/spec/containers/0/args/-", """
        """"value": "-storage.minFreeDiskSpaceBytes=9000TB"}]'""",
        "/api/v1/import/prometheus answered",
    ),
}
"""What is done to a component whose pods go on running, and what its proof then says."""
SETTLE = {
    "registry": "-n primus-registry rollout status deployment/registry --timeout 150s",
    "victoria-metrics": "-n primus-monitoring rollout status statefulset/victoria-metrics --timeout 150s",
}


@pytest.fixture(scope="module")
def whole(standing: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Commands]:
    """Hosts with JuiceFS and nothing else, wanted as a cluster with components; afterwards they are new."""
    standing.renew(*standing.hosts)
    made = Commands(tmp_path_factory.mktemp("home"), standing.stock_components(*CHOICES))
    juicefs.serve(standing)
    for host in standing.hosts:
        juicefs.mount(host)
    for folder, owner in OWNERS.items():
        standing.hosts[0].run(f"install -d -o {owner} -g {owner} {juicefs.MOUNT}/{folder}")
    yield made
    made.primus("down")
    made.ledger.close()
    standing.renew(*standing.hosts)


def components(commands: Commands, *words: str) -> tuple[dict[str, Json], str]:
    """The steps of components after a command that did all that was wanted, by name, and what it said meanwhile."""
    began = time.monotonic()
    out, said = commands.ended(*words)
    told: Json = json.loads(out)
    print(f"bootstrap {' '.join(words)}: {told['word']} after {time.monotonic() - began:.1f} s")
    steps = {step["id"].partition("/")[2]: step for step in told["steps"] if step["id"].startswith("components/")}
    for name, step in steps.items():
        print(f"  {name:18} {step['word']:8} {step['why']}")
    return steps, said


def asked(lab: Lab, commands: Commands, name: str) -> Seen:
    """What a component's proof sees, tried once."""
    profile = load_cluster(str(commands.profile)).model_copy(update={"kubeconfig": str(commands.kubeconfig)})
    proof = load_component(name).proof
    options = main.Options(name, proof.kind, namespace=NAMESPACE, image=profile.programs_image)
    api = open_components(profile, (), len(lab.hosts)).api
    until = time.monotonic() + PROOF_S
    return main.asked(options, api, proof.parameters, until, time.monotonic, time.sleep)


def test_components_serve_and_one_that_does_not_while_its_pods_run_is_found_and_mended(
    lab: Lab, whole: Commands
) -> None:
    def kubectl(words: str) -> str:
        return lab.hosts[0].run(f"{KUBECTL} {words}", limit_s=patience(180.0))

    served, _ = components(whole)
    assert served.keys() >= {choice.name for choice in CHOICES}
    assert {step["word"] for step in served.values()} == {"pass"}
    assert all(host.name in kubectl("top nodes") for host in lab.hosts)

    for words, _ in BREAKS.values():
        kubectl(words)
    for words in SETTLE.values():
        kubectl(words)
    running = kubectl("get pods -A --field-selector status.phase!=Running,status.phase!=Succeeded -o name")
    assert [pod for pod in running.split() if "primus-components" not in pod] == [], "all pods run"
    mended, said = components(whole, "--components")
    for name, (_, why) in BREAKS.items():
        [line] = [line for line in said.splitlines() if line.startswith(f"{name}: fail: ")]
        print(line)
        assert why in line
    assert {step["word"] for step in mended.values()} == {"pass"}, "the same command puts it right"


def test_a_volume_that_is_not_mounted_on_one_host_is_found_there(lab: Lab, whole: Commands) -> None:
    last = lab.hosts[-1]
    components(whole)
    last.run(f"mount -t tmpfs none {juicefs.MOUNT}")
    seen = asked(lab, whole, "local-folder")
    last.run(f"umount {juicefs.MOUNT}")
    print(seen.why)
    assert seen.word == "fail"
    assert f"on {last.name} not read" in seen.why
    assert asked(lab, whole, "local-folder").word == "pass"
