"""deploy/kubernetes.yaml names what the binary has, and its parts belong together. No cluster reads
it here."""

import re
import subprocess

import pytest
import yaml

from conftest import BINARY, ROOT

# What `timeouts.drain` is unless somebody says otherwise.
DRAIN = 10


@pytest.fixture(scope="module")
def parts():
    return {
        part["kind"]: part
        for part in yaml.safe_load_all((ROOT / "deploy/kubernetes.yaml").read_text())
    }


@pytest.fixture(scope="module")
def pod(parts):
    return parts["Deployment"]["spec"]["template"]


@pytest.fixture(scope="module")
def container(pod):
    (container,) = pod["spec"]["containers"]
    return container


def help_of(command):
    told = subprocess.run(
        [BINARY, command, "--help"], capture_output=True, text=True, check=True
    ).stdout
    # However wide the terminal is taken to be.
    return " ".join(told.split())


def test_a_manifests_parts_mean_the_same_pods(parts, pod):
    assert set(parts) == {"Deployment", "Service", "PodDisruptionBudget"}
    labels = pod["metadata"]["labels"]
    assert parts["Deployment"]["spec"]["selector"]["matchLabels"] == labels
    assert parts["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == labels
    assert parts["Service"]["spec"]["selector"] == labels
    assert pod["spec"]["topologySpreadConstraints"][0]["labelSelector"]["matchLabels"] == labels


def test_a_manifests_deploy_never_has_fewer_gateways_than_it_asks_for(parts, pod, container):
    spec = parts["Deployment"]["spec"]
    assert spec["strategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 1}
    assert 0 < parts["PodDisruptionBudget"]["spec"]["maxUnavailable"] < spec["replicas"]
    pause = container["lifecycle"]["preStop"]["sleep"]["seconds"]
    probe = container["readinessProbe"]
    assert pause >= probe["periodSeconds"], "it is forgotten before it refuses"
    assert pod["spec"]["terminationGracePeriodSeconds"] > pause + DRAIN, "it may hand its runs over"


def test_a_manifest_asks_the_binary_for_what_it_has(parts, container, gateway, http):
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    (port,) = parts["Service"]["spec"]["ports"]
    assert port["targetPort"] in ports
    for probe in ("readinessProbe", "livenessProbe"):
        asked = container[probe]["httpGet"]
        assert asked["port"] in ports
        assert http.get(gateway.url + asked["path"]).status_code == 200
    command, *args = container["args"]
    for option in filter(re.compile("--").match, args):
        assert option in help_of(command)
    assert args[args.index("--listen") + 1] == f"0.0.0.0:{ports['http']}"
    # What is mounted is where the binary is told to look.
    (mount,) = container["volumeMounts"]
    assert args[args.index("--config") + 1].startswith(mount["mountPath"] + "/")


def test_a_manifests_environment_is_what_the_binary_reads(container):
    env = {entry["name"]: entry for entry in container["env"]}
    assert set(env) == {"CAPSTAN_JOURNAL", "HOSTNAME", "POD_IP", "CAPSTAN_CLUSTER_URL"}
    assert "secretKeyRef" in env["CAPSTAN_JOURNAL"]["valueFrom"], (
        "the database's password is no part of the manifest"
    )
    for name in ("CAPSTAN_JOURNAL", "CAPSTAN_CLUSTER_URL"):
        assert f"[env: {name}" in help_of("serve")
    # Kubernetes puts in what was named before.
    names = list(env)
    assert env["CAPSTAN_CLUSTER_URL"]["value"].startswith("http://$(POD_IP):")
    assert names.index("POD_IP") < names.index("CAPSTAN_CLUSTER_URL")
