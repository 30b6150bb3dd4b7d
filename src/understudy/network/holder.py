"""A holder's side: a home folder, and a participant of a federation.

    home/
      identity.toml       certificate and key of this party; the key was made here and
                          was never elsewhere
      aggregator.key      of a party without rows: the key that people seal to
      NAME.ledger         what its people have paid, in all runs (or wherever --ledger
                          says)
      audit.jsonl         messages exchanged or refused
      runs/DIGEST/        of each signed contract: its text, the answers that can be
                          repeated, the party's state
      waiting/ decided/   contracts that wait for the holder, and what the holder said
                          (`network.decisions`)
      status.json

Guarantee: the rows are opened here and nowhere else; a contract that the policy has not
passed, and the holder has not accepted where the policy says "ask", is not signed.
Edges: two processes on one home → ArtefactError for the second, so that no answer is
recorded twice.
"""

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from understudy.data.kinds import TABLE, NoRows, load_schema, one_kind_of_row
from understudy.ground.check import known_keys
from understudy.ground.durable import load_toml, own_file, own_folder, replace
from understudy.ground.errors import ArtefactError, ConfigError, Effect
from understudy.network.decisions import DecisionQueue
from understudy.network.status import WatchedLog
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.accounts.ledger import Ledger
from understudy.privacy.secure.sums import KeyPair
from understudy.protocols.core import Party, Watcher
from understudy.protocols.core.alignment import watch_alignment
from understudy.runs.federation import (
    Holder,
    HolderSource,
    OpenedRows,
    open_ledger,
    open_sources,
    public_description,
)
from understudy.runs.registry import protocol_named
from understudy.runtime import certificates
from understudy.runtime.contract import Contract, Policy
from understudy.runtime.grpc.party import enrol
from understudy.runtime.identity import Invitation
from understudy.runtime.session import Participant


@contextmanager
def lock_home(folder: Path) -> Iterator[Path]:
    """The holder's folder, made if need be, for one process at a time."""
    own_folder(folder)
    with os.fdopen(own_file(folder / ".lock", os.O_RDWR), "r+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ArtefactError(
                f"{folder} is in use: another `understudy join` runs with it.",
                effect=Effect.NOTHING_READ_CHARGED_OR_SENT,
            ) from None
        yield folder


def obtain_identity(invitation: Invitation, home: Path, **options: Any) -> Invitation:
    """The party's own identity: kept from before, or exchanged for the invitation now,
    with a key made here.
    """
    invitation.check_time()
    if not invitation.once:
        return invitation
    saved = home / "identity.toml"
    if (
        saved.exists()
        and (identity := Invitation.load(saved)).invitation == invitation.fingerprint
    ):
        identity.check_time()
        return identity
    # kept first: if the answer is lost, we ask again with it
    draft = home / f"{invitation.fingerprint[-16:]}.key"
    if not draft.exists():
        replace(draft, certificates.key_pem(certificates.new_key()))
    identity = enrol(invitation, certificates.load_key(draft.read_bytes()), **options)
    identity.save(saved)
    draft.unlink()
    return identity


def build_participant(
    identity: Invitation,
    *,
    table: Path | None,
    schema: Path,
    policy: Policy,
    home: Path,
    ledger: Path | None = None,
    noise: str = "secure",
    confirm: Callable[[Contract], bool] | None = None,
    withdraw: Callable[[Contract], None] | None = None,
    log: WatchedLog | None = None,
    watch: Watcher | None = None,
    box: Any = None,
) -> Participant:
    """Open rows and ledger, and say how a party is built; without a `table` one of
    nobody, or of a `box`'s uploads.
    """
    name = identity.party
    source: HolderSource = _no_rows(schema, home, box) if table is None else table
    opened = open_sources({name: source}, {name: schema}, same_people=False)[name]
    public = public_description(opened)
    if hasattr(public, "require_public") and hasattr(public, "require_unit"):
        public.require_public(f"the schema of {name} ({schema})")
        public.require_unit(f"the schema of {name} ({schema})")
    limit = Budget(policy.epsilon_total, policy.delta, policy.against)
    book = open_ledger(ledger or home / f"{name}.ledger", name, limit)

    def build(contract: Contract, run_ledger: Ledger, folder: Path) -> Party:
        rows = opened
        budget = contract.budgets[name]
        record = protocol_named(contract.protocol)
        same_people = record.holds_same_people(contract.columns.values())
        if same_people or contract.shared_columns:
            rows = open_sources(
                {name: source},
                {name: schema},
                same_people=same_people,
                shared=contract.shared_columns,
            )[name]
        rng = Holder(name, rows, run_ledger, budget, noise=noise).rng()
        config = record.configured(contract.settings)
        party = record.build(
            name,
            rows,
            run_ledger,
            run=contract.run,
            budget=budget,
            rng=rng,
            folder=folder,
            config=config,
        )
        if watch is not None:
            watch_alignment([party], watch)
        return party

    return Participant(
        invitation=identity,
        policy=policy,
        ledger=book,
        description=public,
        people=policy.people if table is None else _count_people(opened),
        build=build,
        folder=home / "runs",
        confirm=confirm,
        withdraw=withdraw,
        examine=lambda contract: protocol_named(contract.protocol).configured(
            contract.settings
        ),
        log=log or WatchedLog(home / "audit.jsonl"),
    )


def _no_rows(schema: Path, home: Path, box: Any) -> NoRows:
    rows = one_kind_of_row(load_schema(schema))
    return (
        NoRows(rows, aggregator_key(home).secret)
        if box is None
        else NoRows(rows, box=box)
    )


def aggregator_key(home: Path) -> KeyPair:
    """The key that people seal to for an aggregator with this home: drawn once, and
    kept there.
    """
    file = home / "aggregator.key"
    if not file.exists():
        replace(file, KeyPair().secret, sync=True)
    return KeyPair(file.read_bytes())


@contextmanager
def load_participant(path: Path) -> Iterator[Participant]:
    """The participant that a TOML file describes: `home`, `table`, `schema`, `policy`,
    `ledger`, `noise`, relative to it.
    """
    values = load_toml(path, "a participant")
    known_keys(
        values, ("home", "table", "schema", "policy", "ledger", "noise"), path.name
    )
    missing = [
        key for key in ("home", "table", "schema", "policy") if key not in values
    ]
    if missing:
        raise ConfigError(
            f'{path.name}: "{missing[0]}" is missing.',
            effect=Effect.NOTHING_READ_OR_CHARGED,
        )
    files = {
        key: path.parent / value for key, value in values.items() if key != "noise"
    }
    with lock_home(files.pop("home")) as home:
        identity = Invitation.load(home / "identity.toml")
        identity.check_time()
        policy = Policy.load(files.pop("policy"))
        noise = values.get("noise", "secure")
        yield build_participant(
            identity,
            policy=policy,
            home=home,
            noise=noise,
            confirm=DecisionQueue(home=home).later,
            **files,
        )


def _count_people(opened: OpenedRows) -> int:
    if TABLE.holds(opened):
        return opened.rows - opened.repeated
    people: Any = opened.people
    return (
        int(people)
        if isinstance(people, int | np.integer)
        else len(np.unique(np.asarray(people)))
    )
