"""Benchmarks read their options in one way, and before they do anything."""

import importlib.util
import inspect
import re
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
COMMANDS = sorted(
    str(path.relative_to(BENCHMARKS).with_suffix(""))
    for path in BENCHMARKS.glob("*/*.py")
    if '__name__ == "__main__"' in path.read_text()
)
ELSEWHERE = {
    "joint/central": "dpmm",
    "joint/lean_check": "dpmm",
    "network/flower_bench": "flwr",
}


@pytest.mark.parametrize("command", COMMANDS)
def test_help_is_all_that_a_benchmark_does_when_it_is_asked_for_help(
    load_bench: Callable[..., ModuleType],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: str,
) -> None:
    if command in ELSEWHERE and importlib.util.find_spec(ELSEWHERE[command]) is None:
        pytest.skip(f"needs {ELSEWHERE[command]}, in an environment of its own")
    module = load_bench(*command.split("/"))
    first = inspect.getsource(module.main).splitlines()[1]
    # else it would measure here
    assert "parser().parse_args()" in first, "main reads its arguments first"
    monkeypatch.setattr(sys, "argv", [command, "--help"])
    with pytest.raises(SystemExit) as ended:
        module.main()
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("usage: ")


@pytest.mark.parametrize(
    ("said", "small"),
    [(None, False), ("", False), ("0", False), ("1", True), ("yes", True)],
)
def test_quick_means_the_same_for_all_and_writes_only_where_it_is_told_to(
    load_bench: Callable[..., ModuleType],
    monkeypatch: pytest.MonkeyPatch,
    said: str | None,
    small: bool,
) -> None:
    monkeypatch.delenv("QUICK", raising=False)
    if said is not None:
        monkeypatch.setenv("QUICK", said)
    options = load_bench("common", "options")
    assert options.quick() is small
    ours = Path("ours.csv")
    assert options.options("", out=ours).parse_args([]).out == (None if small else ours)
    assert options.options("", out=ours).parse_args(["--out", "here.csv"]).out == Path(
        "here.csv"
    )


def test_a_missing_file_is_named_with_its_public_original(
    load_bench: Callable[..., ModuleType], tmp_path: Path
) -> None:
    sources = load_bench("common", "sources")
    (tmp_path / "a9a.npz").touch()
    assert sources.need(tmp_path, "a9a.npz") == [tmp_path / "a9a.npz"]
    with pytest.raises(
        SystemExit,
        match=r"w8a\.npz is missing\. The public original: LIBSVM w8a \(csie",
    ):
        sources.need(tmp_path, "a9a.npz", "w8a.npz")


def test_every_file_that_a_benchmark_reads_has_a_public_original(
    load_bench: Callable[..., ModuleType],
) -> None:
    known = load_bench("common", "sources").ORIGINALS
    files = set(sum(load_bench("common", "loaders").IMAGES.values(), ()))
    tables = load_bench("common", "public_tables")
    files |= set((tables.FILES | tables.NOT_AT_HAND).values())
    files |= set(sum(load_bench("joint", "tables").FILES.values(), ()))
    files |= set(sum(load_bench("sign_ds").FILES.values(), ()))
    files |= set(load_bench("common", "windows").FILES.values()) | set(
        load_bench("fed_wae", "wae_tables").FILES.values()
    )
    files |= {f"{name}.csv.gz" for name in load_bench("sgde", "tasks").TARGETS} - {
        "breast_cancer_diagnostic.csv.gz"
    }
    files |= {"emnist_bymerge_balanced.npz", "usps.npz"}
    assert files <= set(known)


ROOT = BENCHMARKS.parent
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *BENCHMARKS.glob("*/README.md"),
    *(ROOT / "docs").rglob("*.md"),
]
SCRIPT = re.compile(r"python benchmarks/(\w+/\w+)\.py([^`;#|]*)")
MADE = re.compile(r"(?:^ +|`|^\$ )make ([a-z0-9-]+)((?: [^`#]*)?)", re.MULTILINE)


def written() -> dict[str, list[list[str]]]:
    """The commands that pages have for each script; what is optional is there."""
    found: dict[str, list[list[str]]] = {}
    for page in PAGES:
        for script, words in SCRIPT.findall(page.read_text().replace("\\\n", " ")):
            line = (
                re.sub(r"<[^>]*>|…", "some", words.splitlines()[0])
                if words.strip()
                else ""
            )
            found.setdefault(script, []).append(
                shlex.split(line.replace("[", "").replace("]", ""))
            )
    return found


@pytest.mark.parametrize(("script", "commands"), sorted(written().items()))
def test_every_command_of_a_page_is_one_that_the_script_takes(
    load_bench: Callable[..., ModuleType], script: str, commands: list[list[str]]
) -> None:
    """What takes hours or a GPU is not run here: its options are read, and QUICK runs
    of all are other tests.
    """
    if script in ELSEWHERE and importlib.util.find_spec(ELSEWHERE[script]) is None:
        pytest.skip(f"needs {ELSEWHERE[script]}, in an environment of its own")
    parser = load_bench(*script.split("/")).parser()
    for words in commands:
        parser.parse_args(words)


def test_every_make_of_a_page_has_its_target_and_its_folder() -> None:
    targets = set(
        re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    )
    named = [
        (target, words)
        for page in PAGES
        for target, words in MADE.findall(page.read_text())
    ]
    assert len(named) > 40
    for target, words in named:
        assert target in targets, target
        if target == "paper":  # an item of a paper: tests/test_papers_page.py
            continue
        for name in re.findall(r"NAME=(\w+)", words):
            wanted = ("bench.py",) if target == "bench" else ("tables.toml", "show.py")
            assert any((BENCHMARKS / name / file).exists() for file in wanted), words
