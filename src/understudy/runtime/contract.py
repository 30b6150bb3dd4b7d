"""The contract of a run: what will be done, with whom, at which price. Signed before
anything is asked.

The server offers it, each party checks it against its holder's policy and signs its
digest; from then on the party answers nothing outside it (`runtime.session`). Its price
binds by `Ledger.within`, also where the holder's ledger has room for more.

What a holder allows stands in one TOML file, its policy (`Policy`; `understudy join
--example` prints one), which is read before any contract is signed. Whatever it says, a
contract whose settings the protocol itself refuses is not signed
(`Participant.examine`).

Guarantee: a contract that a policy has not passed is not signed, and no row is read for
it.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any

from understudy.ground.check import (
    finite,
    in_range,
    known_keys,
    one_of,
    plain_name,
    plain_names,
    positive,
    whole,
)
from understudy.ground.durable import load_toml
from understudy.ground.errors import ConfigError, Effect, MessageError, PartyError
from understudy.ground.pack import LIMIT
from understudy.privacy.accounts.budget import AGAINST, PLURALS, Budget

_LONGEST = 1 << 20  # bytes of a contract
_LESS = frozenset(PLURALS) - {"person"}
ACCEPT = ("ask", "always")


@dataclass(frozen=True, kw_only=True)
class Contract:
    """One run. `schemas` are digests of what is public about each party's rows,
    `budgets` the run's price there. The parties are the keys of `schemas`, in the order
    in which they are asked; `message` is the largest message in bytes, either way.
    """

    federation: str
    run: str
    protocol: str
    settings: Mapping[str, Any]
    schemas: Mapping[str, str]
    budgets: Mapping[str, Budget]
    message: int = LIMIT
    columns: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    # what each schema protects, where it is no person
    units: Mapping[str, str] = field(default_factory=dict)
    # whose copy is used of a column that several hold (`data.shared_columns`)
    shared_columns: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.schemas.keys() != self.budgets.keys() or not self.schemas:
            raise ConfigError(
                "A contract names a schema and a budget for every party.",
                effect=Effect.NOTHING_SENT,
            )
        plain_names(self.schemas, "party", effect=Effect.NOTHING_SENT)
        plain_name(run=self.run, federation=self.federation, effect=Effect.NOTHING_SENT)

    @property
    def parties(self) -> tuple[str, ...]:
        return tuple(self.schemas)

    @cached_property
    def text(self) -> str:
        """The one form that is signed: JSON, parties in order, settings sorted, no
        spaces.
        """
        budgets = {
            name: budget.to_dict() | {"epsilon": finite(budget.epsilon)}
            for name, budget in self.budgets.items()
        }
        body = {
            "federation": self.federation,
            "run": self.run,
            "protocol": self.protocol,
            "message": self.message,
            "settings": _plain(self.settings),
            "columns": _plain(self.columns),
            "units": _plain(self.units),
            "parties": [
                {"name": n, "schema": self.schemas[n], "budget": budgets[n]}
                for n in self.parties
            ],
        }
        if self.shared_columns:
            body["shared_columns"] = _plain(self.shared_columns)
        return json.dumps(
            body,
            sort_keys=True,
            separators=(",", ":"),
            allow_nan=False,
            ensure_ascii=False,
        )

    @cached_property
    def digest(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()

    @classmethod
    def from_text(cls, text: str | bytes) -> "Contract":
        """The contract that `text` wrote. MessageError for anything else."""
        if len(text) > _LONGEST:
            raise MessageError("A contract of this size is refused.")
        try:
            body = json.loads(text)
            parties = body.pop("parties")
            schemas = {str(party["name"]): str(party["schema"]) for party in parties}
            budgets = {
                str(party["name"]): _budget(party["budget"]) for party in parties
            }
            contract = cls(schemas=schemas, budgets=budgets, **body)
            same = contract.text == (text if isinstance(text, str) else text.decode())
        except (
            ValueError,
            TypeError,
            KeyError,
            AttributeError,
            RecursionError,
            ConfigError,
        ):
            raise MessageError("This is not a contract.") from None
        texts = all(
            isinstance(body[key], str) for key in ("federation", "run", "protocol")
        )
        listed = isinstance(contract.columns, dict) and all(
            isinstance(one, dict) for one in contract.columns.values()
        )
        units = contract.units
        known_units = (
            isinstance(units, dict)
            and units.keys() <= schemas.keys()
            and set(units.values()) <= _LESS
        )
        shared = contract.shared_columns
        owners = isinstance(shared, dict) and all(
            isinstance(owner, str) for owner in shared.values()
        )
        if not (same and texts and listed and known_units and owners):
            raise MessageError("This is not a contract.")
        return contract

    @property
    def protects(self) -> str:
        """What the run protects: a person where every party's schema does, else
        less.
        """
        less = set(self.units.values())
        if not less:
            return "person"
        return less.pop() if len(less) == 1 else "row"

    def same_parties(self, schemas: Mapping[str, Any]) -> bool:
        """Whether these are the parties of the contract, each with the schema whose
        digest stands in it.
        """
        return {name: _digest(values) for name, values in schemas.items()} == dict(
            self.schemas
        )

    def same_settings(self, config: Mapping[str, Any]) -> bool:
        return bool(_plain(config) == _plain(self.settings))


def digest_of(description: Any) -> str:
    """SHA-256 of what is public about a party's rows: a schema, or the features of a
    population.
    """
    return _digest(
        description.to_dict()
        if hasattr(description, "to_dict")
        else asdict(description)
    )


def units_of(schemas: Mapping[str, Any]) -> dict[str, str]:
    """What each of these descriptions protects, where it is no person."""
    units = {
        name: getattr(getattr(one, "schema", one), "unit", "person")
        for name, one in schemas.items()
    }
    return {name: unit for name, unit in units.items() if unit != "person"}


def columns_of(description: Any) -> dict[str, str]:
    """Each column of a schema with a short digest of what is public about it; nothing
    for other descriptions.
    """
    columns = getattr(description, "columns", ())
    return {
        column.name: _digest(asdict(column) | {"kind": column.kind})[:16]
        for column in columns
    }


def _digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def _budget(values: Mapping[str, Any]) -> Budget:
    return Budget(
        **{
            **values,
            "epsilon": math.inf if values["epsilon"] is None else values["epsilon"],
        }
    )


def _plain(value: Any) -> Any:
    return json.loads(json.dumps(value, allow_nan=False))


@dataclass(frozen=True, kw_only=True)
class Policy:
    protocols: tuple[str, ...]  # which systems may run here
    epsilon_run: float  # the most that one run may cost a person here
    # the most that all runs may cost; the ledger's own limit binds besides
    epsilon_total: float
    delta: float  # the largest δ
    people: int = 1000  # with fewer people than this here, every run is refused
    # a person about every contract, or "always" within these limits
    accept: str = "ask"
    partners: tuple[str, ...] | None = None  # who else may take part; None: anybody
    # "outsider" also lets runs that protect less from the server and the parties
    against: str = "anyone"
    message_mb: int = 1024  # the largest message
    # whether other holders of rows may also hold some of these people
    people_are_elsewhere: bool = False
    # the least and the most that a setting of a contract may be; others are free
    settings: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("protocols", "partners"):
            values = getattr(self, name)
            if name == "protocols" or values is not None:
                if not isinstance(values, list | tuple) or not all(
                    isinstance(v, str) for v in values
                ):
                    raise ConfigError(
                        f"{name} must be a list of names, not {values!r}."
                    )
                object.__setattr__(self, name, tuple(values))
        positive(epsilon_run=self.epsilon_run, epsilon_total=self.epsilon_total)
        in_range(0, 1, delta=self.delta)
        whole(people=self.people, message_mb=self.message_mb)
        one_of(ACCEPT, accept=self.accept)
        if not isinstance(self.people_are_elsewhere, bool):
            raise ConfigError(
                "people_are_elsewhere must be true or false, not "
                f"{self.people_are_elsewhere!r}."
            )
        one_of(AGAINST, against=self.against)
        object.__setattr__(self, "settings", _ranges(self.settings))

    @classmethod
    def load(cls, path: str | Path) -> "Policy":
        """Read and check a policy file. ConfigError names the key and the nearest right
        one.
        """
        path = Path(path)
        values = load_toml(path, "the policy")
        known_keys(values, (field.name for field in fields(cls)), path.name)
        for key in ("protocols", "epsilon_run", "epsilon_total", "delta"):
            if key not in values:
                raise ConfigError(f'{path.name}: "{key}" is missing.')
        return cls(**values)

    def check(
        self,
        contract: Contract,
        party: str,
        *,
        schema: str,
        people: int,
        spent: float,
        columns: Mapping[str, str] | None = None,
        unit: str = "person",
    ) -> None:
        """PartyError if this contract is not for this party as the holder allows it,
        and what to do then.

        It is added to the price of the run as it stands, which is more than the two
        compose to at the same δ's: the check may refuse early; the ledger decides
        exactly. The number of people is told to nobody here: too few is all that the
        refusal says.
        """
        if party in contract.parties and contract.units.get(party, "person") != unit:
            raise PartyError(
                f"{party} refuses the contract: by its schema a {unit} is protected "
                "here, and the contract says "
                "otherwise.",
                effect=Effect.NOTHING_READ_CHARGED_OR_SENT,
            )
        refusal = self._refusal(contract, party, schema, people, spent, columns or {})
        if refusal:
            why, then = refusal
            raise PartyError(
                f"{party} refuses the contract: {why}. {then}",
                effect=Effect.NOTHING_READ_CHARGED_OR_SENT,
            )

    def _refusal(
        self,
        contract: Contract,
        party: str,
        schema: str,
        people: int,
        spent: float,
        columns: Mapping[str, str],
    ) -> tuple[str, str] | None:
        if party not in contract.parties:
            return "it is not among the parties", "The run file names them."
        budget = contract.budgets[party]
        limits = f"the policy of {party}"
        if contract.protocol not in self.protocols:
            return (
                f"protocol {contract.protocol!r} is not allowed here",
                f"See `protocols` in {limits}.",
            )
        if contract.schemas[party] != schema:
            differs = _difference(contract.columns.get(party, {}), columns)
            return differs, "Both sides need the same schema file."
        lower = f"Lower `epsilon` of {party} in the run file, or have its holder raise"
        if budget.epsilon > self.epsilon_run:
            why = (
                f"ε={budget.epsilon:g} is above the ε={self.epsilon_run:g} that one "
                "run may cost"
            )
            return why, f"{lower} `epsilon_run` in {limits}."
        if spent + budget.epsilon > self.epsilon_total:
            why = (
                f"ε={budget.epsilon:g} on top of what was spent is above "
                f"ε={self.epsilon_total:g} in all"
            )
            return (
                why,
                f"{lower} `epsilon_total` in {limits}, and the budget of its ledger.",
            )
        if budget.delta > self.delta:
            why = f"δ={budget.delta:g} is above the allowed δ={self.delta:g}"
            return why, f"Lower `delta` of {party} in the run file."
        if budget.against != self.against and self.against == "anyone":
            return (
                "its price would bind against an outsider only",
                f"See `against` in {limits}.",
            )
        if people < self.people:
            return (
                "there are too few people here to hide among",
                f"See `people` in {limits}.",
            )
        over_rows = (
            len(contract.parties) > 1
            and len({tuple(c) for c in contract.columns.values()}) <= 1
        )
        if (
            self.people_are_elsewhere
            and over_rows
            and contract.settings.get("max_holders_per_person", 1) == 1
        ):
            why = (
                "other holders may also hold its people, and the price is for people "
                "whom only one holds"
            )
            return (
                why,
                "Set `max_holders_per_person` in the run file: how many of its "
                "parties may hold one person.",
            )
        if contract.message > self.message_mb << 20:
            why = (
                f"messages of up to {contract.message:,} bytes are above "
                f"{self.message_mb} MB"
            )
            return why, f"See `message_mb` in {limits}."
        for name, (low, high) in self.settings.items():
            setting = contract.settings.get(name)
            if not _within(setting, low, high):
                why = f"{name} = {setting!r} is outside {low:g} to {high:g}"
                return (
                    why,
                    f"Change it in the run file, or see `[settings]` in {limits}.",
                )
        if self.partners is not None and (
            strange := [p for p in contract.parties if p not in (*self.partners, party)]
        ):
            return (
                f"{strange[0]!r} is not a partner of this holder",
                f"See `partners` in {limits}.",
            )
        return None


def _ranges(settings: Any) -> dict[str, tuple[float, float]]:
    if not isinstance(settings, Mapping):
        raise ConfigError(f"settings must be a table of ranges, not {settings!r}.")
    ranges = {}
    for name, pair in settings.items():
        if not isinstance(pair, list | tuple) or len(pair) != 2:
            raise ConfigError(f"settings.{name} must be [least, most], not {pair!r}.")
        low, high = pair
        in_range(-math.inf, math.inf, **{f"settings.{name}": low})
        in_range(low, math.inf, **{f"settings.{name}": high})
        ranges[name] = (low, high)
    return ranges


def _within(value: Any, low: float, high: float) -> bool:
    """Whether a setting lies there, or each of several; one that the contract does not
    have, or leaves open, does.
    """
    if isinstance(value, list | tuple):
        return all(_within(one, low, high) for one in value)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return value is None or (number and low <= value <= high)


def _difference(theirs: Mapping[str, str], ours: Mapping[str, str]) -> str:
    """Where the contract's copy of a schema is another than the party's."""
    both = theirs.keys() & ours.keys()
    parts = [
        f"column {name!r} differs"
        for name in sorted(both)
        if theirs[name] != ours[name]
    ]
    parts += [
        f"column {name!r} is missing here" for name in sorted(theirs.keys() - both)
    ]
    parts += [
        f"column {name!r} is missing there" for name in sorted(ours.keys() - both)
    ]
    if not theirs or not parts:
        return "the contract is about another schema than this party's"
    more = f" and {len(parts) - 3} more" if len(parts) > 3 else ""
    return f"its copy of this party's schema is another: {', '.join(parts[:3])}{more}"
