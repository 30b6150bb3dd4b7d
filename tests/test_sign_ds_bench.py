"""The benchmark of SignDS-FL, on scikit-learn's digits."""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

JOB = {
    "task": "digits",
    "method": "EM-MDS (h=5)",
    "epsilon": 8.0,
    "seed": 0,
    "rounds": 2,
    "data": Path(),
    "device": "cpu",
    "global_rate": 12.5,
    "machine": "here",
}


def test_a_curve_has_a_row_for_each_round_that_was_evaluated(
    load_bench: Callable[..., ModuleType],
) -> None:
    curves = load_bench("sign_ds", "curves")
    rows = curves.measure(JOB | {"every": 1})
    assert [row["round"] for row in rows] == [1, 2]
    assert all(set(row) == set(curves.FIELDS) for row in rows)
    assert rows[0]["dims"] == 650


@pytest.mark.parametrize("clients_per_round", [20, 1000])
def test_a_group_is_of_the_asked_size_or_of_all_clients(
    load_bench: Callable[..., ModuleType], clients_per_round: int
) -> None:
    group = load_bench("sign_ds", "group")
    row: dict[str, Any] = group.measure(
        JOB | {"study": "group", "clients_per_round": clients_per_round, "rounds": 1}
    )
    assert set(row) == set(group.FIELDS)
    assert row["clients"] == 143
    assert row["up_bytes_per_report"] > 0
    assert row["clients_per_round"] == clients_per_round


def test_shares_are_between_the_random_one_and_one(
    load_bench: Callable[..., ModuleType],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    shares = load_bench("sign_ds", "shares")
    monkeypatch.setattr("sys.argv", ["shares.py", "--out", str(tmp_path / "s.csv")])
    shares.main()
    lines = (tmp_path / "s.csv").read_text().splitlines()[1:]
    committed = Path(shares.__file__).with_name("shares.csv").read_text().splitlines()
    assert lines == committed[1:]
    assert all(0.1 < float(line.split(",")[-1]) < 1 for line in lines)


def test_a_start_from_public_rows_is_ahead_and_the_rows_are_not_tested_on(
    load_bench: Callable[..., ModuleType],
) -> None:
    public = load_bench("sign_ds", "public")
    plain, begun = (
        public.measure(JOB | {"method": public.METHOD, "public_rows": rows})
        for rows in (0, 100)
    )
    assert set(plain) == set(begun) == set(public.FIELDS)
    assert plain["start"] < 0.3 < 0.7 < begun["start"]
    bench = load_bench("sign_ds")
    _, test, _ = bench.load("digits", Path(), 0)
    apart, rest = bench.set_apart(test, 100, 0)
    assert (len(apart.rows), len(apart.rows) + len(rest.rows)) == (100, len(test.rows))


@pytest.mark.parametrize("holders", ["1", "20"])
def test_changes_take_fewer_bytes_than_weights_and_as_many_asks(
    load_bench: Callable[..., ModuleType], holders: str
) -> None:
    downlink = load_bench("sign_ds", "downlink")
    cell = JOB | {"rounds": 3, "holders": holders}
    weights, changes = (
        downlink.measure(cell | {"downlink": kind}) for kind in downlink.DOWNLINKS
    )
    assert set(weights) == set(downlink.FIELDS)
    assert weights["asks"] == changes["asks"]
    assert (weights["moves"], changes["moves"] > 0) == (0, True)
    assert changes["down_bytes_per_ask"] < weights["down_bytes_per_ask"]
    assert 0 < changes["down_bytes_per_move"] < changes["down_bytes_per_ask"]
    assert changes["up_bytes_per_report"] == weights["up_bytes_per_report"]
