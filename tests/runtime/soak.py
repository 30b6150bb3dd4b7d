"""Server and parties killed at random, again and again: the result and the ledgers of
an undisturbed run.

    make soak                     # 100 kills, some minutes
    python tests/runtime/soak.py --kills 6 --seed 1

Each run has a server and its parties as processes of their own on the loopback. Whoever
chance says is ended by kill -9 and started again at once, ten times a run; then the run
may end. It is compared with the same seed in one process: the weights must be equal to
the last bit. A ledger must hold every charge that was made (a witness file is written
beside it, before and after each), and beyond those of an undisturbed run at most one
for each kill of its party: a charge whose answer was not yet recorded.
"""

import argparse
import os
import random
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

sys.path += [
    str(Path(__file__).parents[up] / place)
    for up, place in ((0, ""), (1, ""), (1, "contract"))
]

import torch
from network_cases import POLICY, equal
from protocol_cases import CASES, Case, weights

from forks import fork
from understudy.ground.durable import replace as replace_file
from understudy.ground.pack import pack, unpack
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.accounts.ledger import Ledger
from understudy.protocols.core.base import Party
from understudy.runtime.contract import Contract, digest_of, units_of
from understudy.runtime.grpc.party import join
from understudy.runtime.grpc.server import GrpcParties
from understudy.runtime.identity import Authority, Invitation, load_server
from understudy.runtime.local import LocalParties
from understudy.runtime.session import Participant

ROUNDS = 12
A_RUN = 10
WIDE = Budget(90.0, 1e-5)  # a contract with room for charges that are lost


def cases() -> list[Case]:
    """A vertical and a horizontal protocol, with rounds enough to be killed in."""
    vertical = replace(
        CASES[0], settings=CASES[0].settings | {"rounds": ROUNDS, "checkpoint_every": 3}
    )
    plain = next(case for case in CASES if case.protocol == "sign-ds")
    known = set(plain.record.config.__dataclass_fields__)
    saves = {"checkpoint_every": 3} if "checkpoint_every" in known else {}
    return [
        vertical,
        replace(
            plain,
            settings=plain.settings | {"rounds": ROUNDS, "max_reports": ROUNDS} | saves,
        ),
    ]


def contract_of(case: Case) -> Contract:
    schemas = case.federation().schemas
    return Contract(
        federation="soak",
        run="contract",
        protocol=case.protocol,
        settings=asdict(case.config()),
        schemas={name: digest_of(schema) for name, schema in schemas.items()},
        budgets=dict.fromkeys(schemas, WIDE),
        units=units_of(schemas),
    )


def undisturbed(case: Case) -> tuple[dict[str, torch.Tensor], dict[str, int]]:
    """Weights, and how many charges each ledger has."""
    federation = case.federation()
    parties = LocalParties(
        federation.parties(case.protocol, config=case.config(), run="contract")
    )
    outcome = case.record.train(case.config(), parties, federation.schemas)
    counts = {
        name: len(holder.ledger.entries())
        for name, holder in federation.holders.items()
    }
    return weights(outcome), counts


# Each of these is a process of its own


def serve(case: Case, home: Path, port: int) -> None:
    kinds = next(
        iter(
            case.federation()
            .parties(case.protocol, config=case.config(), run="x")
            .values()
        )
    ).messages
    identity = load_server(home / "federation")
    parties = GrpcParties(
        contract_of(case),
        identity,
        kinds=kinds,
        listen=f"127.0.0.1:{port}",
        patience=120.0,
        linger=60.0,
    )
    with parties:
        outcome = case.record.train(
            case.config(),
            parties,
            case.federation().schemas,
            checkpoint=home / "checkpoint",
            resume=True,
        )
        replace_file(home / "weights", pack(weights(outcome)))


def take_part(case: Case, home: Path, name: str, port: int) -> None:
    federation = case.federation()
    holder = federation.holders[name]
    place = home / name
    place.mkdir(exist_ok=True)
    ledger = Ledger(place / "party.ledger", holder=name, budget=Budget(1000.0, 1e-5))
    watch(ledger, os.open(place / "witness", os.O_WRONLY | os.O_CREAT | os.O_APPEND))
    ledger.real = False  # a rehearsal whose ledger outlives its process

    def build(contract: Contract, within: Ledger, folder: Path) -> Party:
        more = {
            "run": contract.run,
            "budget": case.budget,
            "rng": holder.rng(),
            "folder": folder,
        }
        party: Party = case.record.build(name, holder.table, within, **more)
        return party

    participant = Participant(
        invitation=Invitation.load(home / f"{name}.toml"),
        policy=POLICY,
        ledger=ledger,
        people=20,
        description=federation.schemas[name],
        build=build,
        folder=place / "participant",
    )
    join(
        participant,
        address=f"127.0.0.1:{port}",
        pause=0.02,
        longest_pause=0.2,
        patience=120.0,
    )


def watch(ledger: Ledger, witness: int) -> None:
    """Say beside the ledger what it is about to write, and what it has written."""
    charge = Ledger.charge

    def charged(self: Ledger, *args: Any, **more: Any) -> Any:
        if self.id != ledger.id:
            return charge(self, *args, **more)
        os.write(witness, b"+")
        receipt = charge(self, *args, **more)
        os.write(witness, b".")
        return receipt

    Ledger.charge = charged  # type: ignore[method-assign]


# The one who kills


def run_once(
    case: Case, chance: random.Random, kills: int, home: Path
) -> dict[str, int]:
    """One run with so many kills; how often each was hit."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    authority = Authority.create(
        home / "federation", name="soak", address=f"127.0.0.1:{port}"
    )
    names = list(case.federation().holders)
    for name in names:
        authority.issue(name).save(home / f"{name}.toml")
    works: dict[str, Callable[[], None]] = {"server": lambda: serve(case, home, port)}
    works |= {
        name: lambda name=name: take_part(case, home, name, port) for name in names
    }  # type: ignore[misc]
    alive = {who: fork(work) for who, work in works.items()}
    hits = dict.fromkeys(works, 0)
    last = ""
    until = time.monotonic() + 280
    over = 0.0
    while alive:
        time.sleep(chance.uniform(0.0, 0.5) if sum(hits.values()) < kills else 0.05)
        for who, child in list(alive.items()):
            ended, code = os.waitpid(child, os.WNOHANG)
            if ended and code != 0:
                raise SystemExit(f"{who} failed by itself ({code}) after {hits}.")
            if ended:
                del alive[who]
                over = time.monotonic() if who == "server" else over
        if over and alive.keys() == {last} and time.monotonic() > over + 10:
            # It had heard that the run was over, and was killed before it could leave:
            # now it waits for the next one.
            os.kill(alive[last], signal.SIGKILL)
            os.waitpid(alive.pop(last), 0)
        if time.monotonic() > until:
            for child in alive.values():
                os.kill(child, signal.SIGKILL)
            raise SystemExit(f"{', '.join(alive)} did not come to an end after {hits}.")
        if (
            sum(hits.values()) < kills
            and "server" in alive
            and alive.keys() == works.keys()
        ):
            who = chance.choice(list(works))
            if who == "server" and (home / "weights").exists():
                # its run is over, and parties may have left: another server would wait
                # for them in vain
                continue
            os.kill(alive[who], signal.SIGKILL)
            os.waitpid(alive[who], 0)
            hits[who], last = hits[who] + 1, who
            alive[who] = fork(works[who])
    return hits


def examine(case: Case, home: Path, hits: dict[str, int]) -> str:
    """What is wrong with a run, in words; nothing if it is as it should be."""
    plain, counts = undisturbed(case)
    found = unpack((home / "weights").read_bytes())
    if not isinstance(found, dict) or not equal(plain, found):
        return "the weights differ from those of an undisturbed run"
    for name, count in counts.items():
        with Ledger(home / name / "party.ledger") as ledger:
            entries = len(ledger.entries())
        witness = (home / name / "witness").read_bytes()
        begun = witness.count(b"+")
        made = witness.count(b".")
        if not made <= entries - 1 <= begun:  # one is its budget
            return (
                f"{name}: {entries - 1} charges in its ledger, but {made} were made "
                f"and {begun} begun"
            )
        if not count <= entries <= count + hits[name]:
            return (
                f"{name}: {entries} entries where an undisturbed run has {count}; it "
                f"was killed {hits[name]} times"
            )
    return ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument(
        "--seed", type=int, default=None, help="of who is killed, and when"
    )
    args = parser.parse_args()
    torch.set_num_threads(1)
    seed = (
        args.seed if args.seed is not None else random.SystemRandom().randrange(1 << 32)
    )
    chance = random.Random(seed)
    left = args.kills
    turn = 0
    while left > 0:
        case = cases()[turn % 2]
        with tempfile.TemporaryDirectory() as folder:
            begin = time.monotonic()
            hits = run_once(case, chance, min(A_RUN, left), Path(folder))
            wrong = examine(case, Path(folder), hits)
        took = time.monotonic() - begin
        sys.stdout.write(
            f"{case.name}: {sum(hits.values())} kills {hits}, {took:.0f} s: "
            f"{wrong or 'as undisturbed'}\n"
        )
        sys.stdout.flush()
        if wrong:
            raise SystemExit(f"Seed {seed}, run {turn + 1}: {wrong}.")
        left = left - sum(hits.values())
        turn = turn + 1


if __name__ == "__main__":
    main()
