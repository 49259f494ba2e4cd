"""The pages and files about the service hold what the code does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from typer.main import get_command

pytest.importorskip("fastapi", reason="the service comes with the extra `service`")

from autotune.cli.main import app

from . import service_api_page

ROOT = Path(__file__).parents[2]


def test_the_reference_of_the_api_is_the_servers_own_description():
    assert service_api_page.PAGE.read_text() == service_api_page.page(), "make service-api writes it anew"


def parsed(words):
    """The context of a command line, with unknown words refused."""
    command = get_command(app)
    return command.commands[words[0]].make_context(words[0], list(words[1:]))


def test_the_compose_file_starts_commands_that_exist():
    services = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]
    assert set(services) == {"db", "server", "worker"}
    assert parsed(services["server"]["command"]).params["allow_host"] == ["server"]
    worker = parsed(services["worker"]["command"]).params
    assert worker["server"] == "http://server:8642"
    assert worker["token_file"] == parsed(services["server"]["command"]).params["worker_token_file"]
    assert not any(volume.startswith("state:") for volume in services["worker"]["volumes"]), "there is the full token"
    for service in services.values():
        assert "PASSWORD" not in str(service.get("command", "")), "arguments are no place for a secret"
    assert services["server"]["ports"] == ["127.0.0.1:8642:8642"]


def test_the_manifest_starts_commands_that_exist():
    documents = [one for one in yaml.safe_load_all((ROOT / "deploy" / "kubernetes.yaml").read_text()) if one]
    pods = {one["metadata"]["name"]: one["spec"]["template"]["spec"] for one in documents if "template" in one["spec"]}
    assert set(pods) == {"db", "server", "worker"}
    for name, token in (("server", "token"), ("worker", "worker")):
        (container,) = pods[name]["containers"]
        assert parsed(container["args"]).params["token_file"] == Path("/state", token)
        (copying,) = pods[name]["initContainers"]
        assert ("/secret/token" in copying["command"][-1]) is (name == "server"), "no worker has the full token"
        assert "AUTOTUNE_STORAGE" in {variable["name"] for variable in container["env"]}
        assert pods[name]["securityContext"]["runAsNonRoot"] and not pods[name]["automountServiceAccountToken"]
        mounted = {mount["name"] for mount in container["volumeMounts"]}
        assert mounted <= {volume["name"] for volume in pods[name]["volumes"]}


def test_the_commands_of_the_page_are_understood():
    text = (ROOT / "docs" / "service.md").read_text().replace("\\\n", " ")
    lines = [line.strip() for line in text.splitlines() if line.startswith("    autotune ")]
    assert len(lines) >= 8
    for line in lines:
        words = line.partition("#")[0].replace(" &", "").split()[1:]
        if words[0] in ("jobs", "workers"):
            group = get_command(app).commands[words[0]]
            assert group.commands[words[1]].make_context(words[1], words[2:], resilient_parsing=False)
        else:
            assert parsed(words)


@pytest.mark.parametrize("page", ["service.md", "service-api.md"])
def test_the_links_of_the_pages_lead_somewhere(page):
    text = (ROOT / "docs" / page).read_text()
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", text):
        assert "://" in target or (ROOT / "docs" / target).exists(), target


def test_the_table_of_attacks_names_tests_that_exist():
    text = (ROOT / "docs" / "service.md").read_text()
    named = set(re.findall(r"`(test_\w+)`", text))
    tests = "".join(
        (ROOT / "tests" / path).read_text() for path in ("service/test_attacks.py", "service/test_pages.py")
    )
    assert len(named) >= 12 and not {name for name in named if f"def {name}(" not in tests}
