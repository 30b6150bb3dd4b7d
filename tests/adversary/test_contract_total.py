"""A run spends its contract once: however many objects, processes and restarts there
are, and under which name.
"""

import multiprocessing
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from dp_accounting.dp_event import GaussianDpEvent

from understudy.api.train import train
from understudy.data.samples import toy
from understudy.ground.errors import BudgetExceeded, LedgerError
from understudy.privacy.accounts.accounting import epsilon
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.accounts.ledger import Ledger
from understudy.runs.federation import Federation

STEP = GaussianDpEvent(20.0)
PRICE = Budget(1.0, 1e-5)  # of the run; the ledger itself has room for many of them
WHOLE = Budget(50.0, 1e-5)


def steps_of(budget: Budget) -> int:
    """How many steps the budget pays for."""
    count = 1
    while epsilon({STEP: count + 1}, budget.delta) <= budget.epsilon:
        count += 1
    return count


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger(tmp_path / "a.ledger", holder="a", budget=WHOLE) as ledger:
        yield ledger


def spend_all(
    mine: Ledger, *, run: str = "the run", people: list[int] | None = None
) -> int:
    """Charge until it is refused; how often it was not."""
    for count in range(10_000):
        try:
            mine.charge(STEP, run=run, description="a step", people=people)
        except BudgetExceeded as refusal:
            if "limit of this run" not in str(refusal):
                raise
            return count
    raise AssertionError("nothing ends this")


def spend_in_turn(path: Path, ready: Any, paid: Any) -> None:
    """A process of its own, with the ledger open before any other begins to spend."""
    with Ledger(path) as ledger:
        mine = ledger.within("the run", PRICE)
        ready.wait(60)
        paid.put(spend_all(mine))


@pytest.mark.parametrize("people", [None, [1, 2]])
def test_two_objects_for_one_run_spend_its_price_once(
    ledger: Ledger, people: list[int] | None
) -> None:
    one, other = (ledger.within("the run", PRICE) for _ in range(2))
    half = steps_of(PRICE) // 2
    for _ in range(half):
        one.charge(STEP, run="the run", description="a step", people=people)
    assert spend_all(other, people=people) == steps_of(PRICE) - half
    for mine in (one, other):
        with pytest.raises(BudgetExceeded, match="limit of this run"):
            mine.afford(STEP, people=people)
    assert 0.9 < ledger.spent() <= PRICE.epsilon


def test_a_charge_by_one_object_counts_in_what_the_other_can_afford_person_by_person(
    ledger: Ledger,
) -> None:
    one, other = (ledger.within("the run", PRICE) for _ in range(2))
    spend_all(one, people=[1])
    assert other.able(STEP, people=[1, 2]).tolist() == [False, True]
    other.afford(STEP, people=[2])
    with pytest.raises(BudgetExceeded, match="limit of this run"):
        other.charge(STEP, run="the run", description="a step", people=[1, 2])
    with pytest.raises(BudgetExceeded, match="limit of this run"):
        other.charge(STEP, run="the run", description="everyone, whom 1 is among")


def test_a_restart_does_not_begin_the_price_anew(tmp_path: Path) -> None:
    path = tmp_path / "a.ledger"
    paid = 0
    Ledger(path, holder="a", budget=WHOLE).close()
    for life in range(3):
        with Ledger(path) as ledger:
            mine = ledger.within("the run", PRICE)
            if life < 2:
                mine.charge(STEP, run="the run", description="a step")
            paid += 1 if life < 2 else spend_all(mine)
    assert paid == steps_of(PRICE)


def test_two_processes_for_one_run_spend_its_price_once(tmp_path: Path) -> None:
    path = tmp_path / "a.ledger"
    Ledger(path, holder="a", budget=WHOLE).close()
    fork = multiprocessing.get_context("fork")
    ready = fork.Barrier(2)
    paid_by = fork.Queue()
    both = [
        fork.Process(target=spend_in_turn, args=(path, ready, paid_by))
        for _ in range(2)
    ]
    for one in both:
        one.start()
    paid = [paid_by.get(timeout=60) for _ in both]
    for one in both:
        one.join()
    assert sum(paid) == steps_of(PRICE)
    with Ledger(path) as ledger:
        assert sum(entry.count for entry in ledger.entries()) == steps_of(PRICE)


def test_two_runs_of_one_name_add_up_and_another_name_begins_at_nothing(
    ledger: Ledger,
) -> None:
    first = ledger.within("the run", PRICE)
    assert spend_all(first) == steps_of(PRICE)
    with pytest.raises(BudgetExceeded, match='limit of this run, "the run"'):
        ledger.within("the run", PRICE).afford(STEP)
    assert spend_all(ledger.within("another", PRICE), run="another") == steps_of(PRICE)
    larger = Budget(1.5, 1e-5)
    again = spend_all(ledger.within("the run", larger))
    assert again == steps_of(larger) - steps_of(PRICE), (
        "what stands under the name counts"
    )


def test_a_charge_under_another_name_than_the_contract_s_is_refused(
    ledger: Ledger,
) -> None:
    mine = ledger.within("the run", PRICE)
    with pytest.raises(LedgerError, match='for the run "the run", not for "another"'):
        mine.charge(STEP, run="another", description="a step")
    assert not ledger.runs()


def test_a_ledger_that_older_files_hold_counts_a_run_all_the_same(
    ledger: Ledger,
) -> None:
    ledger._store.connection.execute("DROP INDEX entry_run")
    assert spend_all(ledger.within("the run", PRICE)) == steps_of(PRICE)
    assert spend_all(ledger.within("the run", PRICE)) == 0


def test_a_run_that_is_resumed_or_repeated_under_its_name_never_passes_its_price(
    tmp_path: Path,
) -> None:
    """The rows of the ledger's whole budget are there for the taking: the run's own
    price is what stops it.
    """
    frame, schema = toy(rows=60, seed=3)
    columns = {"a": ["id", "colour", "smoker"], "b": ["id", "grade", "treated"]}
    tables = {name: frame[names] for name, names in columns.items()}
    schemas = {name: schema.select(names[1:]) for name, names in columns.items()}
    federation = Federation(
        tables, schemas, budget=Budget(2.0, 1e-5), ledgers=tmp_path / "ledgers"
    )
    for holder in federation.holders.values():
        holder.ledger.set_budget(WHOLE)
    settings = {
        "rounds": 6,
        "critic_steps": 1,
        "batch": 16,
        "checkpoint_every": 2,
        "device": "cpu",
    }

    def stop(progress: object) -> None:
        if getattr(progress, "done", 0) in (3, 5):
            raise RuntimeError("the power is gone")

    for life in range(4):
        with suppress(RuntimeError, BudgetExceeded):
            train(
                "verti-gan",
                federation,
                folder=tmp_path / "out",
                run="the run",
                resume=0 < life < 3,
                watch=stop,
                **settings,
            )
        for holder in federation.holders.values():
            assert holder.ledger.spent() <= 2.0
    assert all(holder.ledger.spent() > 1.0 for holder in federation.holders.values())
