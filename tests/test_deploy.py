"""What is said and shipped about machines of one's own: units, containers, and the commands in them."""

import re
import shlex
from configparser import ConfigParser
from pathlib import Path

import pytest
import yaml
from typer.main import get_command

from understudy.cli import app

ROOT = Path(__file__).parent.parent
DEPLOY = ROOT / "deploy"
COMMANDS = get_command(app).commands  # type: ignore[attr-defined]


def check_command(words: list[str]) -> None:
    """The command exists, and has every option that is written there."""
    command = COMMANDS[words[0]]
    known = {option for parameter in command.params for option in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= known


@pytest.mark.parametrize("who", ["party", "server"])
def test_a_unit_starts_a_command_that_exists_and_keeps_to_its_own_folder(who: str) -> None:
    unit = ConfigParser(interpolation=None, strict=False)
    unit.optionxform = str  # type: ignore[method-assign,assignment]
    unit.read_string((DEPLOY / f"understudy-{who}.service").read_text().replace("\\\n", " "))
    program, *words = shlex.split(unit["Service"]["ExecStart"])
    assert Path(program).name == "understudy"
    check_command(words)
    assert unit["Service"]["UMask"] == "0077"
    assert unit["Service"]["ProtectSystem"] == "strict"
    assert unit["Service"]["NoNewPrivileges"] == "yes"


def test_the_page_shows_the_units_as_they_are() -> None:
    page = (ROOT / "docs" / "deploy.md").read_text()
    party = (DEPLOY / "understudy-party.service").read_text()
    assert f"```ini\n{party}```" in page
    server = (DEPLOY / "understudy-server.service").read_text()
    shown = re.search(r"```ini\n(ExecStart=.*? serve .*?)```", page, re.DOTALL)
    assert shown is not None
    assert shown[1] in server


def test_containers_run_commands_that_exist_and_only_the_hub_listens_on_loopback() -> None:
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    for service in services.values():
        check_command(shlex.split(service["command"]))
    assert [name for name, service in services.items() if "ports" in service] == ["hub"]
    assert services["hub"]["ports"][0].startswith("127.0.0.1:")


def test_the_container_is_built_from_files_that_are_here_and_does_not_run_as_root() -> None:
    lines = (DEPLOY / "Containerfile").read_text().splitlines()
    copied = [word for line in lines if line.startswith("COPY ") for word in line.split()[1:-1]]
    assert all((ROOT / word).exists() for word in copied)
    assert [line for line in lines if line.startswith("USER ")] == ["USER understudy"]
    extras = re.search(r"'\.\[(.*)\]'", "\n".join(lines))
    assert extras is not None
    text = (ROOT / "pyproject.toml").read_text()
    assert all(re.search(rf"^{extra} = ", text, re.MULTILINE) for extra in extras[1].split(","))
