"""What is said and shipped about machines of one's own: units, containers, and the
commands in them.
"""

import json
import re
import shlex
import tomllib
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
def test_a_unit_starts_a_command_that_exists_and_keeps_to_its_own_folder(
    who: str,
) -> None:
    unit = ConfigParser(interpolation=None, strict=False)
    unit.optionxform = str  # type: ignore[method-assign,assignment]
    unit.read_string(
        (DEPLOY / f"understudy-{who}.service").read_text().replace("\\\n", " ")
    )
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


def test_containers_run_commands_that_exist_and_only_the_hub_listens_on_loopback():
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    for service in services.values():
        check_command(shlex.split(service["command"]))
        assert set(service) <= {
            "image",
            "command",
            "working_dir",
            "volumes",
            "ports",
            "depends_on",
            "restart",
        }
        assert set(service.get("depends_on", ())) <= services.keys()
    assert [name for name, service in services.items() if "ports" in service] == ["hub"]
    host, outside, port = services["hub"]["ports"][0].split(":")
    assert (host, outside) == ("127.0.0.1", port)
    # Within its container the hub listens for the others, also where the federation was
    # made for another address.
    assert f"--listen 0.0.0.0:{port}" in services["hub"]["command"]
    for name in services.keys() - {"hub"}:
        assert services[name]["command"].endswith(f"--address hub:{port}")


def test_every_file_of_a_container_s_command_is_one_that_the_compose_file_has_put_into_its_folder():
    text = (DEPLOY / "compose.yaml").read_text()
    services = yaml.safe_load(text)["services"]
    user = re.search(r"useradd .*--uid (\d+) ", (DEPLOY / "Containerfile").read_text())
    assert user is not None
    assert f"chown -R {user[1]} {' '.join(services)}" in text
    for name, service in services.items():
        assert service["volumes"] == [f"./{name}:{service['working_dir']}"]
        files = re.findall(r"[\w-]+\.(?:toml|csv)", service["command"])
        assert files
        for file in files:
            assert (
                file.replace("insurer", "clinic") in text.partition("services:")[0]
            ), file


def test_the_containerfile_has_instructions_that_there_are_in_their_form() -> None:
    text = (DEPLOY / "Containerfile").read_text().replace("\\\n", " ")
    lines = [
        line.split(" ", 1)
        for line in text.splitlines()
        if line and not line.startswith("#")
    ]
    assert lines[0][0] == "FROM"
    assert {word for word, _ in lines} <= {
        "FROM",
        "RUN",
        "WORKDIR",
        "COPY",
        "USER",
        "VOLUME",
        "ENTRYPOINT",
        "CMD",
        "ENV",
    }
    (entry,) = (json.loads(rest) for word, rest in lines if word == "ENTRYPOINT")
    (words,) = (json.loads(rest) for word, rest in lines if word == "CMD")
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert entry[0] in scripts
    assert words == ["--help"]


def test_the_container_is_built_from_files_that_are_here_and_does_not_run_as_root():
    lines = (DEPLOY / "Containerfile").read_text().splitlines()
    copied = [
        word
        for line in lines
        if line.startswith("COPY ")
        for word in line.split()[1:-1]
    ]
    assert all((ROOT / word).exists() for word in copied)
    assert [line for line in lines if line.startswith("USER ")] == ["USER understudy"]
    extras = re.search(r"'\.\[(.*)\]'", "\n".join(lines))
    assert extras is not None
    text = (ROOT / "pyproject.toml").read_text()
    assert all(
        re.search(rf"^{extra} = ", text, re.MULTILINE) for extra in extras[1].split(",")
    )
