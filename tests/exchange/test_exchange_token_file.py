"""A silo's command whose token cannot be read says so in one line."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from understudy.cli import app
from understudy.ground.errors import ConfigError


@pytest.mark.parametrize("kind", ["missing", "a folder", "no text"])
def test_a_token_file_that_cannot_be_read_is_named(kind: str, tmp_path: Path) -> None:
    place = tmp_path / "admin.token"
    if kind == "a folder":
        place.mkdir()
    elif kind == "no text":
        place.write_bytes(b"\xff\xfe\xff")
    words = [
        "exchange",
        "token",
        "new",
        "north",
        "--at",
        "http://localhost:1",
        "--token-file",
        str(place),
    ]
    done = CliRunner().invoke(app, words)
    assert isinstance(done.exception, ConfigError)
    assert f"{place}: the token cannot be read" in str(done.exception)
