"""`make guard` notices what got worse, and what it counts stands in its file."""

import platform
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest


@pytest.fixture(scope="module")
def guard(load_bench: Callable[..., ModuleType]) -> ModuleType:
    return load_bench("guard", "bench")


def rows(*given: tuple[str, str, float]) -> list[dict[str, Any]]:
    chip = platform.machine()
    return [
        {
            "figure": name,
            "kind": kind,
            "chip": chip if kind == "ratio" else "",
            "value": value,
        }
        for name, kind, value in given
    ]


@pytest.fixture
def planted(
    guard: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> Callable[..., str | None]:
    """`make guard` with these figures, (what stands in the file, what is found now);
    what it ended with.
    """

    def run(
        ratio: tuple[float, list[float]], count: tuple[int, int | None], *more: str
    ) -> str | None:
        path = tmp_path / "guard.csv"
        found = iter(ratio[1])
        guard.write(
            path,
            rows(("a ratio", "ratio", ratio[0]), ("a count", "count", count[0])),
            guard.FIELDS,
        )
        monkeypatch.setattr(guard, "RATIOS", {"a ratio": lambda: next(found)})
        monkeypatch.setattr(guard, "COUNTS", {"a count": lambda: count[1]})
        monkeypatch.setattr("sys.argv", ["guard", "--out", str(path), *more])
        try:
            guard.main()
        except SystemExit as ended:
            return str(ended.code)
        return None

    return run


def test_what_stands_is_fine_and_so_is_what_got_better(
    planted: Callable[..., str | None],
) -> None:
    assert planted((1.0, [1.0]), (4, 4)) is None
    assert planted((1.0, [0.5]), (4, 3)) is None


def test_a_planted_worsening_is_noticed(planted: Callable[..., str | None]) -> None:
    assert planted((1.0, [1.3, 1.25, 1.21]), (4, 4)) == "1 got worse: a ratio"
    assert planted((1.0, [1.0]), (4, 5)) == "1 got worse: a count"
    assert planted((1.0, [9.0, 9.0, 9.0]), (0, 1)) == "2 got worse: a ratio; a count"


def test_counts_alone_are_looked_at_where_nothing_is_to_be_timed(
    planted: Callable[..., str | None],
) -> None:
    assert planted((1.0, []), (4, 4), "--counts") is None
    assert planted((1.0, []), (4, 5), "--counts") == "1 got worse: a count"


def test_what_a_busy_machine_blurred_once_is_measured_again(
    planted: Callable[..., str | None],
) -> None:
    assert planted((1.0, [1.3, 1.1]), (4, 4)) is None


def test_what_cannot_be_measured_here_is_said_and_keeps_its_row(
    planted: Callable[..., str | None],
    guard: ModuleType,
    tmp_path: Any,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert planted((1.0, [0.7]), (4, None), "--write") is None
    assert "a count: cannot be measured here" in capsys.readouterr().out
    ratio, count = guard.read(tmp_path / "guard.csv")
    assert (ratio["value"], count["value"]) == ("0.7", "4")
    assert ratio["machine"]
    assert ratio["date"]


def test_a_ratio_of_another_kind_of_processor_is_no_yardstick(
    planted: Callable[..., str | None],
    guard: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Any,
) -> None:
    monkeypatch.setattr(guard, "chip", lambda name: "another")
    assert planted((1.0, [9.0]), (4, 4), "--write") is None
    assert [row["value"] for row in guard.read(tmp_path / "guard.csv")] == [
        "9",
        "1.0",
        "4",
    ]


def test_every_figure_is_committed_and_no_other(guard: ModuleType) -> None:
    committed = guard.read(guard.HERE / "guard.csv")
    assert list(dict.fromkeys(row["figure"] for row in committed)) == [
        *guard.RATIOS,
        *guard.COUNTS,
    ]
    assert len({(row["figure"], row["chip"]) for row in committed}) == len(committed)
    assert all(float(row["value"]) >= 0 for row in committed)


def test_no_round_waits(guard: ModuleType) -> None:
    assert guard.waits() == 0
