"""The server of one run file: offer the contract, wait for the signatures, train, save.

    run_file = RunFile.load("run.toml", elsewhere=True)
    result, folder = serve_file(run_file, Path("federation"))

In the output folder, beside the artefacts of every run: contract.json (what was
offered, word for word), audit.jsonl and status.json.

Guarantee: no row is read here, and no table is named. What a run costs at each holder
stands in the contract that the holder signs; what it did cost is the ledgers' word.
"""

import dataclasses
import json
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from understudy.api.train import open_public_rows, stoppable
from understudy.data.kinds import PublicSchema
from understudy.ground.durable import own_folder, replace, replace_json, sync_folder
from understudy.ground.errors import ArtefactError, ConfigError, ContractRefused, Effect
from understudy.network.status import PriceWatcher, Status, note_served
from understudy.protocols.core import Watcher
from understudy.protocols.protocol import Protocol
from understudy.runs.registry import protocol_named, resolve_run_file
from understudy.runs.result import Result
from understudy.runs.runfile import RunFile
from understudy.runtime.contract import Contract, columns_of, digest_of, units_of
from understudy.runtime.grpc.server import GrpcParties
from understudy.runtime.identity import load_server
from understudy.runtime.journal import AuditLog


@dataclass(frozen=True, kw_only=True)
class ContractOffer:
    """A run file, read and checked, and the contract that it comes to, made by
    `prepare_offer`.
    """

    file: RunFile
    protocol: Protocol
    config: Any
    schemas: Mapping[str, PublicSchema]
    contract: Contract
    out: Path
    public_rows: Mapping[str, Any]
    # how many parties suffice, where the people are not the same
    min_holders: int | None = None

    def note(self) -> None:
        """What stays beside the artefacts: from now on the folder holds this run."""
        self.out.mkdir(parents=True, exist_ok=True)
        replace_json(self.out / "run.json", {"run": self.contract.run})
        replace(self.out / "run.toml", self.file.to_toml().encode())
        replace(self.out / "contract.json", self.contract.text.encode())

    def has_begun(self) -> bool:
        """Whether all have signed it once: then something may have been asked, and
        paid.
        """
        return (self.out / "signed.json").exists() or (self.out / "checkpoint").exists()

    def begin(self) -> None:
        replace_json(self.out / "signed.json", {"contract": self.contract.digest})

    def set_aside(self) -> None:
        """A contract that was refused, and of which nothing was asked, makes room for
        another in the same folder.
        """
        if not self.has_begun():
            refused = own_folder(self.out / "refused") / f"{self.contract.digest}.json"
            (self.out / "contract.json").replace(refused)

    def train(
        self, parties: Any, *, resume: bool, watch: Watcher | None = None
    ) -> Result:
        with stoppable(watch) as watcher:
            outcome = self.protocol.train(
                self.config,
                parties,
                self.schemas,
                checkpoint=self.out / "checkpoint",
                resume=resume,
                watch=watcher,
                **self.public_rows,
            )
        result = Result.from_outcome(
            outcome, parties.transcript, self.contract.run, schemas=self.schemas
        )
        result.save(self.out, rows=self.file.rows)
        return result


def prepare_offer(
    file: RunFile, federation: str, *, resume: bool = False
) -> ContractOffer:
    """Read what a run file names, and say what will be offered to the parties of this
    federation.
    """
    file = resolve_run_file(file)
    protocol = protocol_named(file.protocol)
    config = protocol.configured(file.settings)
    if file.rows is not None and protocol.artefact != "generator":
        raise ConfigError(
            f'"rows": {file.protocol} draws no rows.', effect=Effect.NOTHING_SENT
        )
    schemas = file.schemas_in_run()
    same_people = protocol.holds_same_people(
        schema.names for schema in schemas.values()
    )
    holdout, public = (
        None if name is None else file.path(name)
        for name in (file.holdout, file.public)
    )
    public_rows = open_public_rows(
        file.protocol,
        config,
        schemas,
        same_people=same_people,
        holdout=holdout,
        public=public,
    )
    out = file.path(file.out)
    contract = _build_contract(file, config, schemas, federation, out, resume)
    min_holders = None if same_people else getattr(config, "min_holders", None)
    return ContractOffer(
        file=file,
        protocol=protocol,
        config=config,
        schemas=schemas,
        contract=contract,
        out=out,
        public_rows=public_rows,
        min_holders=min_holders,
    )


class _RunFileReplaced(Exception):  # noqa: N818  (a turn, not a fault)
    """The run file was changed while its contract was refused."""

    state = "replaced"

    def __init__(self, file: RunFile) -> None:
        super().__init__()
        self.file = file


def serve_file(
    file: RunFile,
    federation: Path,
    *,
    resume: bool = False,
    listen: str | None = None,
    patience: float = 3600.0,
    away: float | None = None,
    wait: float = 7 * 86_400.0,
    linger: float = 10.0,
    changed: Callable[[], RunFile | None] | None = None,
    ready: Callable[[GrpcParties, Status], None] | None = None,
) -> tuple[Result, Path]:
    """Carry out a run file whose holders are elsewhere; its artefacts lie in the folder
    that is returned. `wait` is how many seconds all parties may take to join and sign,
    `patience` how long one answer may take, `away` how long a party that was asked may
    be without a connection; in a horizontal partition, those who take longer are left
    out where the settings say `min_holders` and so many are there; `linger` how long
    the end waits for parties that have not heard of it. With `resume` it continues
    where it was, or begins if it never began. `ready` is called when it listens.

    If a party refuses the contract, all are told why, and ContractRefused is raised.
    With `changed` the run is held instead: the one that refused may come and sign after
    all, and as soon as `changed` returns a run file, the contract of that one is
    offered.
    """
    identity = load_server(federation)
    while True:
        contract_offer = prepare_offer(file, identity.roster.name, resume=resume)
        parties = GrpcParties(
            contract_offer.contract,
            identity,
            kinds=contract_offer.protocol.messages,
            listen=listen,
            patience=patience,
            away=away,
            linger=linger,
            log=AuditLog(contract_offer.out / "audit.jsonl"),
        )
        contract_offer.note()  # now that the port is ours
        note_served(identity.folder, contract_offer.contract.run, contract_offer.out)
        status = Status(
            contract_offer.out,
            more=parties.status,
            role="server",
            listen=listen or identity.roster.address,
        )
        try:
            with parties:
                with status:
                    if ready is not None:
                        ready(parties, status)
                    status.update(state="waiting")
                    parties.wait(
                        wait,
                        min_holders=contract_offer.min_holders,
                        refused=_report_refusals(status, changed),
                    )
                    contract_offer.begin()
                    status.update(state="training", error="")
                    result = contract_offer.train(
                        parties, resume=resume, watch=PriceWatcher(status)
                    )
                    status.update(
                        state="done", epsilon=dict(result.privacy.per_party())
                    )
                # a party that hears of the end deletes what it could repeat: so all is
                # on the disk here
                for path in (*contract_offer.out.rglob("*"), contract_offer.out):
                    sync_folder(path)
            return result, contract_offer.out
        except ContractRefused:
            contract_offer.set_aside()
            raise
        except _RunFileReplaced as another:
            contract_offer.set_aside()
            file = another.file


def _report_refusals(
    status: Status, changed: Callable[[], RunFile | None] | None
) -> Callable[[str], None] | None:
    """What is done while a party refuses: say so, and look for another run file."""
    if changed is None:
        return None

    def report_refusal(why: str) -> None:
        status.update(state="refused", error=why)
        file = changed()
        if file is not None:
            raise _RunFileReplaced(file)

    return report_refusal


def _build_contract(
    file: RunFile,
    config: Any,
    schemas: Mapping[str, PublicSchema],
    federation: str,
    out: Path,
    resume: bool,
) -> Contract:
    """What is offered: a new run, or word for word the one that was begun here."""
    saved = out / "contract.json"
    if saved.exists() and not resume:
        raise ArtefactError(
            f"{out} already has a run in it. Choose another `out`.",
            effect=Effect.NOTHING_SENT,
        )
    begun = json.loads(saved.read_text(encoding="utf-8")) if saved.exists() else None
    contract = Contract(
        federation=federation,
        run=begun["run"] if begun else f"{file.protocol}-{uuid.uuid4().hex[:8]}",
        protocol=file.protocol,
        settings=dataclasses.asdict(config),
        schemas={name: digest_of(schema) for name, schema in schemas.items()},
        columns={name: columns_of(schema) for name, schema in schemas.items()},
        units=units_of(schemas),
        shared_columns=file.shared_columns,
        budgets={name: section.budget() for name, section in file.parties.items()},
    )
    if begun is not None and begun != json.loads(contract.text):
        raise ArtefactError(
            f"{out} holds a run under another contract: settings, schemas, budgets or "
            "parties have changed since. "
            "Use the run file as it was, or choose another `out`.",
            effect=Effect.NOTHING_SENT,
        )
    return contract
