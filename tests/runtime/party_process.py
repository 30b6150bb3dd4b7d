"""A party as a process of its own: `party_process.py NAME FOLDER PORT WHEN CASE`
joins the server at that port. CASE is the name of one of the protocols' cases; by
default it is VertiGAN's first.

At its second round it dies by kill -9 if WHEN says so: "recorded" when the answer is on
disk and not yet sent, "charged" when it is paid for and not yet computed. "encrypted":
when its first encrypted rows are on disk and not yet sent; likewise "mask_ids" and
"remask" in a union, when a set is. Where rows are encrypted a line of `encrypted.txt`
says at which place.
"""

import os
import signal
import sys
from pathlib import Path

sys.path += [
    str(Path(__file__).parents[up] / place)
    for up, place in ((0, ""), (1, ""), (1, "contract"))
]

from network_cases import POLICY
from protocol_cases import CASES

from understudy.privacy.accounts.ledger import Ledger
from understudy.privacy.secure.lwe import Bits, Encryptor, Words
from understudy.privacy.secure.private_union import UnionMask
from understudy.protocols.core.base import Party
from understudy.protocols.papers.vertical_gans.critic_round import CriticRound
from understudy.runtime.contract import Contract
from understudy.runtime.grpc.party import join
from understudy.runtime.identity import Invitation
from understudy.runtime.journal import Journal
from understudy.runtime.session import Participant


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def at_second_round(when: str) -> None:
    """Put the end where WHEN says."""
    write = Journal.write
    compute = CriticRound.__call__
    rounds = []

    def written(self: Journal, *record: object) -> None:
        write(self, *record)  # type: ignore[arg-type]
        if when == "recorded" and len(rounds) == 2:
            die()

    def computed(self: CriticRound, *args: object) -> object:
        rounds.append(1)
        if when == "charged" and len(rounds) == 2:
            die()
        return compute(self, *args)

    Journal.write = written
    CriticRound.__call__ = computed


def at_first_encrypted_rows(when: str, places: Path) -> None:
    """Put the end there, if WHEN says so, and write down what is encrypted."""
    write = Journal.write
    encrypt = Encryptor.encrypt
    begun = []

    def written(self: Journal, *record: object) -> None:
        write(self, *record)  # type: ignore[arg-type]
        if when == "encrypted" and begun:
            die()

    def encrypted(self: Encryptor, place: bytes, rows: Bits) -> Words:
        begun.append(place)
        with places.open("a") as file:
            file.write(f"{place.hex()}\n")
        return encrypt(self, place, rows)

    Journal.write = written
    Encryptor.encrypt = encrypted


def at_first_set(when: str) -> None:
    """Put the end there, if WHEN names a step of a union."""
    if when not in ("mask_ids", "remask"):
        return
    write = Journal.write
    step = getattr(UnionMask, when)
    begun = []

    def written(self: Journal, *record: object) -> None:
        write(self, *record)  # type: ignore[arg-type]
        if begun:
            die()

    def masked(self: UnionMask, *args: object) -> object:
        begun.append(when)
        return step(self, *args)

    Journal.write = written
    setattr(UnionMask, when, masked)


def play(name: str, folder: Path, port: int, when: str, chosen: str) -> None:
    case = next(case for case in CASES if case.name == chosen)
    federation = case.federation()
    holder = federation.holders[name]
    ledger = Ledger(folder / "party.ledger", holder=name, budget=holder.ledger.budget)
    ledger.real = False  # a rehearsal whose ledger outlives its process

    def build(contract: Contract, ledger: Ledger, place: Path) -> Party:
        return case.record.build(
            name,
            holder.table,
            ledger,
            run=contract.run,
            budget=contract.budgets[name],
            rng=holder.rng(),
            folder=place,
            **case.record.agreed(case.config()),
        )

    participant = Participant(
        invitation=Invitation.load(folder / "invitation.toml"),
        policy=POLICY,
        ledger=ledger,
        description=federation.schemas[name],
        people=holder.table.rows,
        build=build,
        folder=folder / "participant",
    )
    at_second_round(when)
    at_first_encrypted_rows(when, folder / "encrypted.txt")
    at_first_set(when)
    join(participant, address=f"127.0.0.1:{port}", pause=0.02, patience=60.0)


if __name__ == "__main__":
    name, folder, port, when, chosen = sys.argv[1:]
    play(name, Path(folder), int(port), when, chosen)
