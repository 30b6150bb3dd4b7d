"""The decision about a contract: it waits in a holder's home until a person has said
yes or no to exactly this one.

`understudy join` puts the contract there and waits; `understudy approve`, the console,
or a person at the terminal of `join` decides.

Guarantee: a decision is under the digest of the contract, word for word, and is on the
disk before it counts; it says nothing about any other contract. The policy was asked
before, and the ledger decides about every charge besides.
"""

import json
import math
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from understudy.ground.durable import own_folder, replace
from understudy.ground.errors import ArtefactError, ConfigError, Effect
from understudy.privacy.accounts.budget import PLURALS
from understudy.privacy.accounts.statement import SEVERAL
from understudy.runtime.contract import Contract
from understudy.runtime.identity import Invitation


@dataclass(kw_only=True)
class DecisionQueue:
    """Contracts that wait for a person: asked by `prompt`, which returns None until
    something is said, or `decide`d.
    """

    home: Path
    show: Callable[[Contract], None] = lambda contract: None
    prompt: Callable[[], bool | None] | None = None
    stopped: threading.Event = field(default_factory=threading.Event)
    _withdrawn: set[str] = field(default_factory=set)

    def __call__(self, contract: Contract) -> bool:
        waiting, decided = self._files(contract.digest)
        replace(waiting, contract.text.encode())
        self.show(contract)
        try:
            while not decided.exists():
                decision = None if self.prompt is None else self.prompt()
                if decision is not None:
                    self.decide(contract, accept=decision)
                elif contract.digest in self._withdrawn or self.stopped.wait(0.3):
                    return False
            return decided.read_text(encoding="utf-8") == "accepted"
        finally:
            waiting.unlink(missing_ok=True)
            decided.unlink(missing_ok=True)

    def withdraw(self, contract: Contract) -> None:
        """Nobody offers this contract any more: who waits for the decision waits no
        longer.
        """
        self._withdrawn.add(contract.digest)

    def later(self, contract: Contract) -> bool:
        """What was decided; if nothing was, it waits for next time, and counts as not
        accepted now.
        """
        waiting, decided = self._files(contract.digest)
        if not decided.exists():
            replace(waiting, contract.text.encode())
            return False
        accepted = decided.read_text(encoding="utf-8") == "accepted"
        waiting.unlink(missing_ok=True)
        decided.unlink()
        return accepted

    def waiting(self) -> list[Contract]:
        contracts = []
        for file in sorted((self.home / "waiting").glob("*.json")):
            with suppress(FileNotFoundError):  # decided in this moment
                contracts.append(Contract.from_text(file.read_text(encoding="utf-8")))
        return [
            contract
            for contract in contracts
            if not self._files(contract.digest)[1].exists()
        ]

    def find(self, digest: str) -> Contract:
        """The contract of this digest, if it waits. ArtefactError if not: it was
        decided, withdrawn, or never here.
        """
        for contract in self.waiting():
            if contract.digest == digest:
                return contract
        raise ArtefactError(
            "This contract does not wait for a decision any more: it was decided "
            "elsewhere, or `understudy join` has ended.",
            effect=Effect.NOTHING_CHANGED,
        )

    def decide(self, contract: Contract, *, accept: bool) -> None:
        """What the holder says of this contract, and of no other. On the disk on
        return.
        """
        replace(
            self._files(contract.digest)[1],
            b"accepted" if accept else b"refused",
            sync=True,
        )

    def _files(self, digest: str) -> tuple[Path, Path]:
        files = self.home / "waiting" / f"{digest}.json", self.home / "decided" / digest
        for file in files:
            own_folder(file.parent)
        return files


def contract_words(contract: Contract, party: str) -> list[tuple[str, str]]:
    """A contract as a holder reads it: what, and what that means here."""
    budget = contract.budgets[party]
    price = "without limit" if budget.epsilon == math.inf else str(budget)
    other_parties = ", ".join(name for name in contract.parties if name != party)
    unit = contract.protects
    several = "" if unit == "person" else f"; {SEVERAL.format(units=PLURALS[unit])}"
    shared = json.dumps(dict(contract.shared_columns), ensure_ascii=False)
    copies = [("whose copies", shared)] if contract.shared_columns else []
    return [
        ("federation", contract.federation),
        ("run", contract.run),
        ("protocol", contract.protocol),
        ("settings", json.dumps(dict(contract.settings), ensure_ascii=False)),
        *copies,
        ("with", other_parties or "nobody else"),
        ("price here", f"at most {price}, for each {contract.protects}{several}"),
        ("digest", contract.digest),
    ]


def read_party(home: Path) -> str:
    try:
        return Invitation.load(home / "identity.toml").party
    except ConfigError:
        raise ArtefactError(
            f"{home} is not the home of a party: nobody has joined from there."
        ) from None
