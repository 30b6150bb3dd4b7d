"""What a run left in its folder, read so that a missing or damaged piece is a reason
and not an end.

Guarantee: nothing here opens a holder's table or ledger; both are only named
(`Artefacts.parties`).
Edges: no folder, or none of the pieces in it → ArtefactError.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd

from understudy.data.kinds import (
    ARRAYS,
    EVENTS,
    TABLE,
    ArraySchema,
    MixedSchema,
    PublicSchema,
    load_any,
)
from understudy.data.schema import Schema
from understudy.data.visits import SeveralVisits, VisitSchema
from understudy.ground.durable import read_json, read_toml
from understudy.ground.errors import ArtefactError, SchemaError
from understudy.privacy.accounts.budget import rehearsal_of, rehearsed

T = TypeVar("T")
Described = PublicSchema | MixedSchema | SeveralVisits


@dataclass(frozen=True, kw_only=True, eq=False)
class Artefacts:
    """The pieces of one run; None where one is not there, and then `missing` says why,
    by file name. `drawn` are all synthetic tables by their names, or one without a
    name; `synthetic` is that one, and of people with events their events, of the first
    kind.
    """

    folder: Path = Path()
    card: Mapping[str, Any] | None = None
    described: Described | None = None
    synthetic_tables: Mapping[str, pd.DataFrame] | None = None
    privacy: Mapping[str, Any] | None = None
    transcript: list[dict[str, Any]] | None = None
    audit: Mapping[str, Any] | None = None
    settings: Mapping[str, Any] | None = None
    run: str = ""
    # the holder's file of people who took no part, where there is one
    held_out: str = ""
    rehearsed: bool = False
    model: bool = False
    missing: Mapping[str, str] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        return TABLE.name if self.described is None else self.described.kind

    @property
    def schema(self) -> Schema | None:
        return self.described if TABLE.describes(self.described) else None

    @property
    def arrays(self) -> ArraySchema | None:
        return self.described if ARRAYS.describes(self.described) else None

    @property
    def visits(self) -> VisitSchema | SeveralVisits | None:
        return self.described if EVENTS.describes(self.described) else None

    @property
    def synthetic(self) -> pd.DataFrame | None:
        """The synthetic rows; of people with events their events, of the first kind."""
        events = [
            frame
            for name, frame in (self.synthetic_tables or {}).items()
            if name != "people"
        ]
        return events[0] if events else None

    @property
    def owners(self) -> Mapping[str, str] | None:
        owners = (self.card or {}).get("owners")
        return owners if isinstance(owners, dict) else None

    @property
    def union(self) -> list[str]:
        """The holders of a run over the union of their people; of others none."""
        if not isinstance((self.card or {}).get("union"), dict):
            return []
        return list(dict.fromkeys((self.owners or {}).values()))

    @property
    def rehearsal(self) -> str:
        """Why nothing of this run is private, in words, by any of its pieces; nothing
        where it was the real thing.
        """
        pieces = (self.privacy or {}, self.card or {}, *(self.transcript or ()))
        stated = next(filter(None, map(rehearsal_of, pieces)), "")
        fast = [
            party
            for party in self.parties.values()
            if party.get("noise", "secure") != "secure"
        ]
        if stated:
            return stated
        if fast:
            return rehearsed({"": ["fast"]})
        return rehearsed({"": ["seed"]}) if self.rehearsed else ""

    @property
    def protocol(self) -> str:
        return str((self.card or self.settings or {}).get("protocol", ""))

    @property
    def config(self) -> Mapping[str, Any]:
        config = (self.card or {}).get("config")
        return config if isinstance(config, dict) else {}

    @property
    def target(self) -> str | None:
        target = self.config.get("target")
        return target if isinstance(target, str) else None

    @property
    def parties(self) -> dict[str, dict[str, Any]]:
        """What the run file says of each party: where its table, schema and
        ledger lie.
        """
        sections = (self.settings or {}).get("parties", {})
        return {name: body for name, body in sections.items() if isinstance(body, dict)}


def load_artefacts(folder: str | Path) -> Artefacts:
    folder = Path(folder)
    missing: dict[str, str] = {}

    def piece(
        name: str,
        read: Callable[[Path], T],
        fits: Callable[[T], bool] = bool,
        misfit: str = "",
    ) -> T | None:
        try:
            body = read(folder / name)
            if misfit and not fits(body):
                raise ValueError(misfit)
            return body
        except FileNotFoundError:
            missing[name] = "it is not in the folder"
        except (OSError, ValueError, SchemaError, ImportError) as error:
            missing[name] = f"it cannot be read ({str(error).splitlines()[0][:200]})"
        return None

    def table(name: str) -> dict[str, Any] | None:
        return piece(
            name,
            read_json,
            lambda body: isinstance(body, dict),
            "it holds no table of keys",
        )

    def names_parties(body: Any) -> bool:
        return isinstance(body.get("parties"), dict)

    home = (
        "model"
        if (folder / "model").exists() and not (folder / "generator").exists()
        else "generator"
    )
    card = table(f"{home}/card.json")
    run_facts = table("run.json") or {}
    described = piece(f"{home}/schema.toml", _load_schema)
    audited = (folder / "audit.json").exists()
    pieces = Artefacts(
        folder=folder,
        card=card,
        described=described,
        synthetic_tables=None
        if home == "model"
        else _read_synthetic(described, lambda name: piece(name, pd.read_parquet)),
        privacy=table("privacy.json") or (card or {}).get("privacy"),
        transcript=piece(
            "transcript.json", read_json, _is_list_of_rows, "it holds no list of rows"
        ),
        audit=piece("audit.json", read_json, _is_audit, "it holds no audit")
        if audited
        else None,
        settings=piece("run.toml", read_toml, names_parties, "it names no parties"),
        run=str(run_facts.get("run", "")),
        held_out=str(run_facts.get("held_out", "")),
        rehearsed=bool(run_facts.get("rehearsal", False)),
        model=home == "model",
        missing=missing,
    )
    if (
        card is None
        and pieces.privacy is None
        and pieces.synthetic is None
        and run_facts
    ):
        raise ArtefactError(
            f"{folder} holds a run that has not ended: no generator, no synthetic "
            "rows and no privacy statement. "
            "Go on with it (`understudy run … --resume`). No report was written."
        )
    if len(missing.keys() - {"audit.json"}) == 7 - pieces.model:
        raise ArtefactError(
            f"{folder} holds no run: {', '.join(missing)} are missing or damaged."
        )
    return pieces


def _is_list_of_rows(body: Any) -> bool:
    return isinstance(body, list) and all(isinstance(row, dict) for row in body)


def _is_audit(body: Any) -> bool:
    return (
        isinstance(body, dict)
        and isinstance(body.get("views"), list)
        and {"claimed", "passed"} <= body.keys()
    )


def _load_schema(path: Path) -> Described:
    if not path.exists():
        raise FileNotFoundError(path)
    return load_any(path)


def _read_synthetic(
    described: Described | None, read: Callable[[str], pd.DataFrame | None]
) -> dict[str, pd.DataFrame] | None:
    """All synthetic tables; None where one cannot be read."""
    files = {"": "synthetic.parquet"}
    if EVENTS.describes(described):
        files = {name: f"synthetic/{name}.parquet" for name in described.tables}
    frames = {name: read(file) for name, file in files.items()}
    readable = {name: frame for name, frame in frames.items() if frame is not None}
    return readable if len(readable) == len(frames) else None
