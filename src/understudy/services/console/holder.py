"""A holder's home, as the console shows it: contracts that wait, with their price;
runs; the ledger.

Guarantee: it reads what `understudy join` and the ledger keep in the home, and no row.
Nothing here is sent anywhere.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from understudy.evidence.signing import sign_statement, statement_to_sign
from understudy.ground.errors import ArtefactError, Effect, UnderstudyError
from understudy.network.decisions import DecisionQueue, read_party
from understudy.network.status import FILE, Traffic, is_alive, read_status, read_traffic
from understudy.privacy.accounts.accounting import distance, epsilon
from understudy.privacy.accounts.budget import (
    ADJACENCIES,
    Budget,
    Guess,
    best_guess,
    unit_of,
)
from understudy.privacy.accounts.ledger import Ledger
from understudy.runs.registry import PROTOCOLS, protocol_named, settings_of
from understudy.runtime.contract import Contract
from understudy.runtime.identity import Invitation
from understudy.runtime.session import ENDED


@dataclass(frozen=True, kw_only=True)
class BudgetStatus:
    """What a ledger allows, and what is spent of it: ε against whom the budget
    binds.
    """

    budget: Budget
    spent: float
    guess: Guess  # by all that was spent
    adjacency: str  # what ε protects in all runs of the ledger

    @property
    def remaining(self) -> float:
        return max(0.0, self.budget.epsilon - self.spent)

    @property
    def unit(self) -> str:
        return unit_of(self.adjacency)


@dataclass(frozen=True, kw_only=True)
class Offered:
    contract: Contract
    party: str
    standing: BudgetStatus | None

    @property
    def about(self) -> str:
        return (
            protocol_named(self.contract.protocol).title
            if self._is_known
            else "This protocol is not known here."
        )

    @property
    def _is_known(self) -> bool:
        """A protocol that is not would not be signed, but it can be read."""
        return self.contract.protocol in PROTOCOLS

    @property
    def price(self) -> Budget:
        return self.contract.budgets[self.party]

    @property
    def adjacency(self) -> str:
        return ADJACENCIES[self.contract.protects]

    @property
    def guess(self) -> Guess:
        """The best guess that the run would allow if it used up its price: by the noise
        that is planned where the settings tell it, else by the price alone.
        """
        price = self.price
        spend = None
        if self._is_known and math.isfinite(price.epsilon):
            record = protocol_named(self.contract.protocol)
            # settings that would not be signed: the price is all that is known
            with suppress(UnderstudyError):
                spend = record.spends(record.configured(self.contract.settings), price)
        planned = None if spend is None else distance(spend)
        return best_guess(price.epsilon, price.delta, distance=planned, by="forecast")

    @property
    def others(self) -> list[str]:
        return [name for name in self.contract.parties if name != self.party]

    @property
    def left_after(self) -> float:
        """About what would be left: prices compose to about their sum, and the ledger
        counts exactly.
        """
        return (
            0.0
            if self.standing is None
            else max(0.0, self.standing.remaining - self.price.epsilon)
        )

    @property
    def fits(self) -> bool:
        return self.standing is None or self.price.epsilon <= self.standing.remaining

    def settings(self) -> list[tuple[str, str, str, str]]:
        """Name, value, default and meaning; those that differ from their default
        first.
        """
        protocol = self.contract.protocol
        known = {}
        usual = {}
        if self._is_known:
            known = {one.name: one for one in settings_of(protocol)}
            declared = protocol_named(protocol).settings
            usual = {
                name: json.dumps(one.default, default=str)
                for name, one in declared.items()
            }
        rows = []
        for name, value in self.contract.settings.items():
            one = known.get(name)
            value_text = json.dumps(value, ensure_ascii=False)
            default_and_meaning = (
                ("", "") if one is None else (one.default, one.meaning)
            )
            rows.append(
                (
                    value_text == usual.get(name),
                    name,
                    "–" if value is None else value_text,
                    *default_and_meaning,
                )
            )
        return [row[1:] for row in sorted(rows, key=lambda row: row[0])]


@dataclass(frozen=True, kw_only=True)
class SignedRun:
    contract: Contract
    price: Budget
    # ε so far, at the contract's δ; None where there is no ledger
    charged: float | None
    guess: Guess | None  # that what was charged allows
    traffic: Traffic
    kept: int  # bytes of recorded answers
    state: str

    @property
    def adjacency(self) -> str:
        return ADJACENCIES[self.contract.protects]

    @property
    def share(self) -> float:
        """How much of its price is charged, between 0 and 1."""
        if not self.charged or not math.isfinite(self.price.epsilon):
            return 0.0
        return min(1.0, self.charged / self.price.epsilon)


@dataclass(frozen=True)
class ToSign:
    """What this holder would sign of a folder of evidence; the page shows it, and the
    digest says that it was shown.
    """

    statement: Mapping[str, Any]
    charged: float  # ε of the run by the ledger, at the budget's δ
    delta: float
    guess: Guess  # that it allows
    adjacency: str  # what the run protects

    @property
    def digest(self) -> str:
        return hashlib.sha256(
            json.dumps(self.statement, sort_keys=True).encode()
        ).hexdigest()

    @property
    def run(self) -> str:
        return str(self.statement["predicate"]["run"])

    @property
    def files(self) -> list[str]:
        return [one["name"] for one in self.statement["subject"]]

    @property
    def receipts(self) -> list[tuple[int, int]]:
        receipts = self.statement["predicate"]["ledger"]["receipts"]
        return [
            (one["entry"], sum(one["uses"]["insider"].values())) for one in receipts
        ]


class HolderHome:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.party = _party(folder)
        self.queue = DecisionQueue(home=folder)

    def status(self) -> dict[str, Any]:
        """What `understudy join` last wrote of itself; empty if it never ran."""
        return read_status(self.folder) if (self.folder / FILE).exists() else {}

    def attended(self) -> bool:
        return is_alive(self.folder) is True

    def book(self) -> Path:
        return Path(self.status().get("book") or self.folder / f"{self.party}.ledger")

    def standing(self) -> BudgetStatus | None:
        path = self.book()
        if not path.exists():
            return None
        with Ledger(path) as book:
            budget = book.budget
            spent = book.spent(against=budget.against)
            return BudgetStatus(
                budget=budget, spent=spent, guess=book.guess(), adjacency=book.adjacency
            )

    def to_sign(self, folder: Path) -> ToSign:
        """What a signature of this folder would say. EvidenceError where the ledger
        does not pay for what is stated.
        """
        path = self.book()
        if not path.exists():
            raise ArtefactError("There is no ledger yet.", effect=Effect.NOTHING_SIGNED)
        statement = statement_to_sign(folder, ledger=path)
        with Ledger(path) as book:
            delta = book.budget.delta
            run = statement["predicate"]["run"]
            charged = epsilon(book.spend(run=run), delta)
            return ToSign(
                statement, charged, delta, book.guess(run), book.adjacency_of([run])
            )

    def sign(self, folder: Path, to_sign: ToSign) -> None:
        identity = Invitation.load(self.folder / "identity.toml")
        sign_statement(
            folder, to_sign.statement, identity.key.encode(), "the party's key"
        )

    def offered(self, digest: str | None = None) -> list[Offered]:
        """The contracts that wait, or the one of this digest. ArtefactError if it does
        not wait.
        """
        waiting = self.queue.waiting() if digest is None else [self.queue.find(digest)]
        standing = self.standing()
        return [
            Offered(contract=one, party=self.party, standing=standing)
            for one in waiting
        ]

    def runs(self, most: int | None = None) -> list[SignedRun]:
        """The contracts that were signed here, the newest first, so many of them at
        most.
        """
        files = sorted(
            (self.folder / "runs").glob("*/contract.json"),
            key=lambda file: -file.stat().st_mtime,
        )
        crossed = read_traffic(self.folder / "audit.jsonl")
        status = self.status()
        with ExitStack() as stack:
            book = (
                stack.enter_context(Ledger(path))
                if (path := self.book()).exists()
                else None
            )
            return [self._run(file, crossed, status, book) for file in files[:most]]

    def _run(
        self,
        file: Path,
        crossed: Mapping[str, Traffic],
        status: Mapping[str, Any],
        book: Ledger | None,
    ) -> SignedRun:
        contract = Contract.from_text(file.read_text(encoding="utf-8"))
        price = contract.budgets[self.party]
        traffic = crossed.get(contract.run, Traffic())
        charged = guess = None
        if book is not None:
            charged = epsilon(
                book.spend(run=contract.run, against=price.against), price.delta
            )
            guess = book.guess(contract.run)
        over = traffic.ended or (file.parent / ENDED).exists()
        running = status.get("run") == contract.run and status.get("state") == "joined"
        state = "running" if running else "not finished"
        if over:
            state = "over"
        answer_bytes = 0
        for answers in file.parent.glob("answers.*"):
            # a run that ends in this moment deletes them
            with suppress(FileNotFoundError):
                answer_bytes += answers.stat().st_size
        return SignedRun(
            contract=contract,
            price=price,
            charged=charged,
            guess=guess,
            traffic=traffic,
            kept=answer_bytes,
            state=state,
        )


def _party(folder: Path) -> str:
    try:
        return read_party(folder)
    except ArtefactError:
        if (folder / FILE).exists() and (status := read_status(folder)).get(
            "role"
        ) == "party":
            return str(status["party"])
        raise
