"""A ledger charges first, refuses in time, forgets nothing, and fails closed."""

import itertools
import math
import os
import sqlite3
import subprocess
import threading
from collections import Counter
from contextlib import nullcontext, suppress
from pathlib import Path

import dp_accounting as dp
import numpy as np
import pytest

from refusals import raises
from understudy.ground.errors import (
    BudgetExceeded,
    ConfigError,
    Effect,
    LedgerError,
    PrivacyError,
)
from understudy.privacy.accounts import ledger as ledger_module
from understudy.privacy.accounts.accounting import PureDp, epsilon
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.accounts.events import event_to_json
from understudy.privacy.accounts.ledger import Ledger, Receipt

BUDGET = Budget(2.0, 1e-5)
PURE = Budget(2.0, 0.0)
STEP = dp.PoissonSampledDpEvent(0.1, dp.GaussianDpEvent(3.0))


def clinic(path: Path, budget: Budget = PURE, **more: float) -> Ledger:
    return Ledger(path / "clinic.ledger", holder="clinic", budget=budget, **more)


def rehearse(budget: Budget = PURE) -> Ledger:
    return Ledger.rehearsal(holder="clinic", budget=budget)


# What it keeps


def test_a_charge_outlives_the_process_that_made_it(tmp_path: Path) -> None:
    with clinic(tmp_path, BUDGET) as ledger:
        receipt = ledger.charge(STEP, run="r1", description="round 1", count=10)
        spent = ledger.spent()
    with Ledger(tmp_path / "clinic.ledger") as again:
        assert again.holder == "clinic"
        assert again.budget == BUDGET
        assert again.real
        assert again.id == receipt.ledger
        assert again.spend() == {STEP: 10}
        assert again.spent() == spent == epsilon({STEP: 10}, BUDGET.delta)
        assert again.remaining() == BUDGET.epsilon - spent
        assert again.runs() == ["r1"]
    assert sorted(file.name for file in tmp_path.iterdir()) == ["clinic.ledger"]
    # nobody else's business
    assert (tmp_path / "clinic.ledger").stat().st_mode & 0o077 == 0


def test_receipts_name_the_entry_and_survive_a_message() -> None:
    ledger = rehearse()
    first, second = (
        ledger.charge(PureDp(0.1), run="r", description=f"round {k}", count=3)
        for k in (1, 2)
    )
    assert second.entry == first.entry + 1
    price = event_to_json(PureDp(0.1))
    assert second == Receipt(
        "clinic", ledger.id, second.entry, "r", "round 2", price, 3
    )
    assert Receipt.from_dict(second.to_dict()) == second


def test_a_persons_spend_is_everyones_charges_and_their_own() -> None:
    ledger = rehearse()
    ledger.charge(PureDp(0.5), run="a", description="to all")
    ledger.charge(
        PureDp(0.25), run="a", description="to two", people=[7, "ann"], count=2
    )
    ledger.charge(PureDp(0.125), run="b", description="to one", people=np.array([7]))
    assert ledger.spend(7) == {PureDp(0.5): 1, PureDp(0.25): 2, PureDp(0.125): 1}
    # the same person, however the id was read
    assert ledger.spent("7") == ledger.spent(7) == 1.125
    assert ledger.spent("ann") == 1.0
    assert ledger.spent("nobody") == 0.5
    assert ledger.spent() == 1.125
    assert ledger.remaining("ann") == 1.0
    assert ledger.spend(run="a") == {PureDp(0.5): 1, PureDp(0.25): 2}
    assert ledger.spend(7, run="b") == {PureDp(0.125): 1}


def test_the_worst_off_person_is_found_among_people_who_did_different_things() -> None:
    ledger = rehearse(Budget(9.0, 0.0))
    cheap = PureDp(0.25)
    dear = PureDp(1.0)
    ledger.charge(cheap, run="r", description="often", people=["a", "b"], count=5)
    ledger.charge(dear, run="r", description="dear", people=["b", "c"])
    ledger.charge(dear, run="r", description="dear", people=["c"])
    assert [ledger.spent(who) for who in "abc"] == [1.25, 2.25, 2.0]
    assert ledger.spent() == 2.25
    assert ledger.spend() == {cheap: 5, dear: 1}


def test_compositions_are_charged_as_their_parts() -> None:
    ledger = rehearse(BUDGET)
    ledger.charge(
        dp.SelfComposedDpEvent(dp.ComposedDpEvent([STEP, PureDp(0.1)]), 2),
        run="r",
        description="w",
        count=3,
    )
    assert ledger.spend() == {STEP: 6, PureDp(0.1): 6}
    ledger.charge(dp.NoOpDpEvent(), run="r", description="nothing")
    assert ledger.spend() == {STEP: 6, PureDp(0.1): 6}


def test_entries_tell_when_what_for_which_run_at_what_price() -> None:
    ledger = rehearse(Budget(4.0, 0.0))
    ledger.charge(PureDp(0.5), run="a", description="round 1")
    ledger.charge(PureDp(0.5), run="a", description="round 2", count=2)
    ledger.charge(PureDp(0.25), run="b", description="report", people=range(1000))
    opening, first, second, third = ledger.entries()
    assert opening.description == "budget: ε=4 at δ=0 against anyone"
    assert (first.run, first.description, first.count, first.people) == (
        "a",
        "round 1",
        1,
        None,
    )
    assert first.event == "a pure mechanism, ε=0.5"
    assert first.when.endswith("+00:00")
    assert [entry.price for entry in (first, second, third)] == [0.5, 1.0, 0.25]
    assert [entry.total for entry in (first, second, third)] == [0.5, 1.5, 1.75]
    assert third.people == 1000
    assert third.cells()[1:] == ("b", "report", "1", "1,000", "0.25", "1.75")
    _, merged, last = ledger.entries(merged=True)
    assert (merged.description, merged.count, merged.charges, merged.price) == (
        "round 1 … round 2",
        3,
        2,
        1.5,
    )
    assert (last.number, last.charges) == (third.number, 1)
    assert ledger.summary().endswith("Left: 2.25.")


# What it refuses


def test_a_charge_over_the_budget_is_refused_before_anything_is_written() -> None:
    ledger = rehearse()
    ledger.charge(PureDp(0.5), run="r", description="round", count=3)
    before = ledger.entries()
    with pytest.raises(BudgetExceeded) as refusal:
        ledger.charge(PureDp(0.75), run="r", description="round")
    assert str(refusal.value) == (
        'clinic: this step costs ε=0.75 but 0.5 of 2.0 is left for person group "all" '
        "(δ=0, against anyone). Nothing was sent."
    )
    assert ledger.entries() == before
    ledger.charge(PureDp(0.5), run="r", description="round")  # exactly the rest
    assert ledger.remaining() == 0


def test_only_the_people_concerned_are_asked_for() -> None:
    ledger = rehearse()
    ledger.charge(PureDp(1.5), run="r", description="w", people=["ann"])
    ledger.charge(PureDp(1.5), run="r", description="w", people=["bob"])
    with pytest.raises(BudgetExceeded, match='person group "2 people of this step"'):
        ledger.charge(PureDp(1.0), run="r", description="w", people=["cem", "ann"])
    with pytest.raises(BudgetExceeded):
        ledger.charge(PureDp(1.0), run="r", description="w")  # everyone includes ann
    ledger.charge(PureDp(1.0), run="r", description="w", people=["cem"])
    ledger.charge(PureDp(9.0), run="r", description="an empty round", people=[])
    assert ledger.spent() == 1.5


def test_gaussian_steps_fit_exactly_as_often_as_the_accountant_says() -> None:
    ledger = rehearse(BUDGET)
    fitting = 0
    with suppress(BudgetExceeded):
        while True:
            ledger.charge(STEP, run="r", description="round", count=25)
            fitting += 25
    assert ledger.spend() == {STEP: fitting}
    assert (
        epsilon({STEP: fitting}, BUDGET.delta)
        <= BUDGET.epsilon
        < epsilon({STEP: fitting + 25}, BUDGET.delta)
    )


def test_a_price_against_insiders_binds_unless_the_budget_is_against_outsiders():
    outside = PureDp(0.25)
    inside = PureDp(1.5)
    for against, refused in (("anyone", True), ("outsider", False)):
        ledger = rehearse(Budget(2.0, 0.0, against))
        ledger.charge(outside, run="r", description="round", insider=inside)
        assert ledger.spent(against="outsider") == 0.25
        assert ledger.spent(against="anyone") == 1.5
        assert ledger.spend(against="outsider") == {outside: 1}
        assert ledger.entries()[-1].price == (1.5 if refused else 0.25)
        if refused:
            with pytest.raises(BudgetExceeded, match=r"costs ε=1\.5 but 0\.5"):
                ledger.charge(outside, run="r", description="round", insider=inside)
        else:
            ledger.charge(outside, run="r", description="round", insider=inside)
        ledger.charge(
            outside,
            run="r",
            description="round",
            count=2,
            insider=inside,
            insider_count=0,
        )
    # an insider's price that is too low hides nothing from an outsider
    with pytest.raises(BudgetExceeded):
        rehearse().charge(PureDp(3.0), run="r", description="w", insider=PureDp(0.1))


def test_what_has_no_price_or_no_sense_is_never_charged() -> None:
    ledger = rehearse()
    charges = [
        (PrivacyError, dp.RandomizedResponseDpEvent(0.5, 2), {}),
        (BudgetExceeded, dp.NonPrivateDpEvent(), {}),
        (BudgetExceeded, dp.GaussianDpEvent(9.0), {}),  # δ=0
        (ConfigError, PureDp(0.1), {"count": 0}),
        (ConfigError, PureDp(0.1), {"people": [1, 1]}),
        (ConfigError, PureDp(0.1), {"people": [1, "1"]}),
        (ConfigError, PureDp(0.1), {"people": [1.5]}),
    ]
    for error, event, more in charges:
        with pytest.raises(error):
            ledger.charge(event, run="r", description="w", **more)
    assert len(ledger.entries()) == 1


def test_able_says_for_each_person_what_a_charge_would() -> None:
    ledger = rehearse()  # ε ≤ PURE.epsilon, plain sums
    third = PureDp(PURE.epsilon / 3)
    ledger.charge(third, run="r", description="everyone")
    ledger.charge(third, run="r", description="some", people=[1, "two"])
    ledger.charge(third, run="q", description="fewer", people=["two"])
    entries = len(ledger.entries())
    people = ["two", 0, 1]
    for count, expected in (
        (1, [False, True, True]),
        (2, [False, True, False]),
        (3, [False] * 3),
    ):
        assert ledger.able(third, count, people=people).tolist() == expected
        for person, able in zip(people, expected, strict=True):
            with nullcontext() if able else pytest.raises(BudgetExceeded):
                ledger.afford(third, count, people=[person])
    assert len(ledger.entries()) == entries


def test_afford_writes_nothing_and_then_rounds_cost_no_accounting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ledger = rehearse(BUDGET)
    with pytest.raises(BudgetExceeded):
        ledger.afford(STEP, 10_000)
    ledger.afford(STEP, 100)
    ledger.afford(STEP, 40, people=range(50))
    assert len(ledger.entries()) == 1

    def never(*_: object, **__: object) -> float:
        raise AssertionError("priced again")

    monkeypatch.setattr(ledger_module, "epsilon", never)
    for k in range(10):
        ledger.charge(STEP, run="r", description=f"round {k}", count=5)
        ledger.charge(
            STEP, run="r", description=f"round {k}", count=5, people=range(k, 50)
        )
    with pytest.raises(AssertionError, match="priced again"):
        ledger.charge(STEP, run="r", description="one more than afforded")


def test_the_memory_of_what_fits_never_admits_what_does_not() -> None:
    ledger = rehearse(Budget(2.0, 0.0))
    a = PureDp(0.5)
    b = PureDp(1.0)
    ledger.afford(a, 4)
    ledger.afford(b, 2)
    ledger.charge(a, run="r", description="w", count=3)
    with pytest.raises(BudgetExceeded):
        ledger.charge(b, run="r", description="w")  # each fits alone, not together
    ledger.set_budget(Budget(1.0, 0.0))
    with pytest.raises(BudgetExceeded):
        # remembered under a limit that no longer rules
        ledger.charge(a, run="r", description="w")


# Whose budget rules


def test_an_existing_ledger_keeps_its_budget_until_it_is_set_explicitly(
    tmp_path: Path,
) -> None:
    clinic(tmp_path).close()
    with raises(
        LedgerError,
        effect=Effect.NOTHING_SENT,
        match="allows ε=2 at δ=0 against anyone, not ε=8",
    ):
        clinic(tmp_path, Budget(8.0, 0.0))
    with clinic(tmp_path) as ledger:
        ledger.charge(PureDp(1.0), run="r", description="w")
        ledger.set_budget(Budget(0.5, 0.0))
        assert ledger.entries()[-1].description == "budget: ε=0.5 at δ=0 against anyone"
        with pytest.raises(BudgetExceeded, match=r"but 0 of 0\.5 is left"):
            ledger.charge(PureDp(0.1), run="r", description="w")
    with clinic(tmp_path, Budget(0.5, 0.0)) as ledger:
        assert ledger.spent() == 1.0
        with pytest.raises(LedgerError, match="finite"):
            ledger.set_budget(Budget(math.inf, 0.0))


def test_a_new_ledger_needs_a_holder_and_a_finite_budget(tmp_path: Path) -> None:
    for given in (
        {},
        {"holder": "clinic"},
        {"budget": PURE},
        {"holder": "clinic", "budget": Budget(math.inf, 0)},
    ):
        with pytest.raises(LedgerError):
            Ledger(tmp_path / "new.ledger", **given)
    assert not list(tmp_path.iterdir())
    clinic(tmp_path / "made" / "on the way").close()
    with pytest.raises(LedgerError, match="the ledger of clinic, not of bank"):
        Ledger(tmp_path / "made" / "on the way" / "clinic.ledger", holder="bank")


def test_a_rehearsal_is_not_real_and_may_be_unlimited() -> None:
    ledger = rehearse(Budget(math.inf, 1e-5))
    assert not ledger.real
    ledger.charge(dp.NonPrivateDpEvent(), run="r", description="plain training")
    assert ledger.spent() == math.inf


# Two at once


def test_two_connections_cannot_overspend_together(tmp_path: Path) -> None:
    clinic(tmp_path, Budget(3.0, 0.0)).close()
    charged: Counter[str] = Counter()

    def spend_all(name: str) -> None:
        with Ledger(tmp_path / "clinic.ledger") as ledger, suppress(BudgetExceeded):
            while True:
                ledger.charge(
                    PureDp(0.0625),
                    run=name,
                    description="w",
                    people=["ann"] if name == "b" else None,
                )
                charged[name] += 1

    threads = [threading.Thread(target=spend_all, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with Ledger(tmp_path / "clinic.ledger") as ledger:
        assert ledger.spent() == 3.0
        assert charged.total() == 48
        assert len(ledger.entries()) == 49


def test_a_ledger_is_shared_by_threads_but_not_by_a_fork(tmp_path: Path) -> None:
    with clinic(tmp_path) as ledger:
        threads = [
            threading.Thread(
                target=ledger.charge,
                args=(PureDp(0.125),),
                kwargs={"run": "r", "description": "w"},
            )
            for _ in range(16)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert ledger.spent() == 2.0
        ledger._store._process = -1  # as a child sees it
        with pytest.raises(LedgerError, match="before a fork"):
            ledger.spent()


# When the file fails


def test_a_full_disk_charges_nothing_and_says_so(tmp_path: Path) -> None:
    with clinic(tmp_path) as ledger:
        pages = ledger._store.connection.execute("PRAGMA page_count").fetchone()[0]
        ledger._store.connection.execute(f"PRAGMA max_page_count={pages}")
        with raises(
            LedgerError,
            effect=Effect.NOTHING_COMPUTED_OR_SENT,
            match="clinic.ledger: the disk is full",
        ):
            ledger.charge(PureDp(0.1), run="r", description="w", people=range(1000))
        assert len(ledger.entries()) == 1
        ledger._store.connection.execute(f"PRAGMA max_page_count={pages + 1000}")
        ledger.charge(PureDp(0.1), run="r", description="w", people=range(1000))
        assert ledger.spent() == pytest.approx(0.1)


@pytest.fixture
def small_disk(tmp_path: Path):  # type: ignore[no-untyped-def]
    """A real file system of 256 KiB."""
    made = (
        os.geteuid() == 0
        and not subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", tmp_path],
            capture_output=True,
        ).returncode
    )
    if not made:
        pytest.skip("a disk can be mounted by root only")
    yield tmp_path
    subprocess.run(["umount", "-l", tmp_path], check=True)


def _charge_until_it_fails(ledger: Ledger) -> None:
    for k in itertools.count(step=100):
        ledger.charge(
            PureDp(2**-20), run="r", description="round", people=range(k, k + 100)
        )


def test_a_truly_full_disk_charges_nothing_and_recovers(small_disk: Path) -> None:
    with clinic(small_disk) as ledger:
        ledger.charge(PureDp(0.5), run="r", description="before")
        filler = small_disk / "filler"
        with suppress(OSError), filler.open("wb", buffering=0) as file:
            while True:
                file.write(b"x" * 512)
        with raises(
            LedgerError,
            effect=Effect.NOTHING_COMPUTED_OR_SENT,
            match="the disk is full",
        ):
            _charge_until_it_fails(ledger)
        entries = len(ledger.entries())
        spent = ledger.spent()
        assert spent >= 0.5
        filler.unlink()
        ledger.charge(PureDp(0.25), run="r", description="after")
        assert len(ledger.entries()) == entries + 1
    with Ledger(small_disk / "clinic.ledger") as ledger:
        assert ledger.spent() == pytest.approx(spent + 0.25)


def test_a_read_only_disk_charges_nothing(small_disk: Path) -> None:
    clinic(small_disk).close()
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    with raises(LedgerError, effect=Effect.NOTHING_COMPUTED_OR_SENT):
        clinic(small_disk).charge(PureDp(0.1), run="r", description="w")
    with raises(
        LedgerError,
        effect=Effect.NOTHING_COMPUTED_OR_SENT,
        match="Read-only file system",
    ):
        Ledger(small_disk / "another.ledger", holder="clinic", budget=PURE)


def test_a_ledger_held_by_another_process_is_not_written(tmp_path: Path) -> None:
    with clinic(tmp_path, patience=0.05) as ledger:
        other = sqlite3.connect(tmp_path / "clinic.ledger", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with raises(
            LedgerError,
            effect=Effect.NOTHING_COMPUTED_OR_SENT,
            match="another process holds it",
        ):
            ledger.charge(PureDp(0.1), run="r", description="w")
        other.execute("ROLLBACK")
        other.close()
        ledger.charge(PureDp(0.1), run="r", description="w")


def test_a_file_that_is_no_ledger_is_left_as_it_is(tmp_path: Path) -> None:
    text = tmp_path / "text"
    empty = tmp_path / "empty"
    other = tmp_path / "other"
    text.write_text("a ledger, honestly " * 100)
    empty.touch()  # what is left of a truncated ledger must not become a fresh budget
    connection = sqlite3.connect(other)
    connection.execute("CREATE TABLE t (x)")
    connection.close()
    for file in (text, empty, other):
        before = file.read_bytes()
        with raises(
            LedgerError,
            effect=Effect.NOTHING_COMPUTED_OR_SENT,
            match="it is not a ledger",
        ):
            Ledger(file, holder="clinic", budget=PURE)
        assert file.read_bytes() == before
    with pytest.raises(LedgerError):
        Ledger(tmp_path, holder="clinic", budget=PURE)  # a folder


def test_a_damaged_ledger_is_not_used(tmp_path: Path) -> None:
    with clinic(tmp_path) as ledger:
        ledger.charge(PureDp(0.1), run="r", description="w", people=range(5000))
    file = tmp_path / "clinic.ledger"
    whole = file.read_bytes()
    file.write_bytes(
        whole[: len(whole) // 2] + b"\xff" * 4096 + whole[len(whole) // 2 + 4096 :]
    )
    with raises(LedgerError, effect=Effect.NOTHING_COMPUTED_OR_SENT, match="damaged"):
        clinic(tmp_path)
    file.write_bytes(whole[: len(whole) // 2])
    with raises(LedgerError, effect=Effect.NOTHING_COMPUTED_OR_SENT, match="damaged"):
        clinic(tmp_path)


def test_the_file_is_synced_at_every_commit_and_only_grows(tmp_path: Path) -> None:
    with clinic(tmp_path) as ledger:
        ledger.charge(PureDp(0.1), run="r", description="w")
        sql = ledger._store.connection
        assert sql.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert sql.execute("PRAGMA synchronous").fetchone() == (2,)
        for change in (
            "DELETE FROM entry",
            "UPDATE entry SET what = ''",
            "DELETE FROM line",
            "UPDATE line SET count = 1",
        ):
            with pytest.raises(sqlite3.IntegrityError, match="only grows"):
                sql.execute(change)


def test_a_closed_ledger_charges_nothing(tmp_path: Path) -> None:
    ledger = clinic(tmp_path)
    ledger.close()
    with raises(LedgerError, effect=Effect.NOTHING_COMPUTED_OR_SENT):
        ledger.charge(PureDp(0.1), run="r", description="w")
