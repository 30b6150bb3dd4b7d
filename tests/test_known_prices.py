"""Tests may look prices up, but only those that the accountant as it stands would
give.
"""

import math
from pathlib import Path

import pytest
from dp_accounting import GaussianDpEvent, NonPrivateDpEvent, PoissonSampledDpEvent

from known_prices import KnownPrices, follows_from
from understudy.privacy.accounts import accounting
from understudy.privacy.accounts.events import DiscreteGaussian, PureDp

ASKED = [
    (frozenset({(PureDp(0.5), 3)}), 0.0, "pld"),
    (frozenset({(PureDp(0.5), 4)}), 0.0, "pld"),
    (frozenset({(GaussianDpEvent(2.0), 3)}), 1e-5, "pld"),
    (frozenset({(GaussianDpEvent(2.0), 3)}), 1e-6, "pld"),
    (frozenset({(GaussianDpEvent(2.0), 3)}), 1e-6, "rdp"),
    (frozenset({(PoissonSampledDpEvent(0.1, GaussianDpEvent(2.0)), 3)}), 1e-6, "rdp"),
    (frozenset({(PoissonSampledDpEvent(0.2, GaussianDpEvent(2.0)), 3)}), 1e-6, "rdp"),
    (frozenset({(DiscreteGaussian(2.0), 3), (GaussianDpEvent(2.0), 3)}), 1e-6, "rdp"),
    (frozenset({(NonPrivateDpEvent(), 1)}), 1e-6, "pld"),
]


def test_a_price_that_is_looked_up_is_the_one_that_would_be_worked_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = KnownPrices(tmp_path)
    expected = [accounting._epsilon(*asked) for asked in ASKED]
    assert [first(*asked) for asked in ASKED] == expected
    assert len(set(first.prices.values())) == len(ASKED), (
        "no two of these questions share an answer"
    )
    assert math.inf in expected
    second = KnownPrices(tmp_path)
    monkeypatch.setattr(second, "work_out", None)
    assert [second(*asked) for asked in ASKED] == expected


def test_what_another_process_adds_is_found_and_half_a_line_is_left_for_later(
    tmp_path: Path,
) -> None:
    one = KnownPrices(tmp_path)
    other = KnownPrices(tmp_path)
    price = one(*ASKED[2])
    line = one.file.read_bytes()
    one.file.write_bytes(line[:-9])
    other._look()
    assert not other.prices
    one.file.write_bytes(line)
    other._look()
    assert [*other.prices.values()] == [price]


def test_a_changed_accountant_starts_an_empty_file(tmp_path: Path) -> None:
    source = tmp_path / "accounting.py"
    names = set()
    for text in ("_LARGE = 500.0\n", "_LARGE = 400.0\n"):
        source.write_text(text)
        names.add(follows_from(str(source)))
    assert len(names) == 2


def test_tests_of_the_accountant_are_never_shown_a_known_price() -> None:
    assert not isinstance(accounting._epsilon, KnownPrices)
