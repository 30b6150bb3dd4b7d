"""A wheel holds the whole package: templates and marks as well as modules."""

import zipfile
from pathlib import Path

import pytest

from wheel_check import ROOT, build


@pytest.mark.long
def test_a_wheel_holds_every_file_of_the_package_and_nothing_else(
    tmp_path: Path,
) -> None:
    source = ROOT / "src"
    files = (
        path
        for path in source.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    )
    ours = {
        str(path.relative_to(source)) for path in files if ".egg-info" not in str(path)
    }
    with zipfile.ZipFile(build(tmp_path)) as wheel:
        held = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert held == ours
    assert {Path(name).suffix for name in ours} >= {".py", ".html", ".typed"}
