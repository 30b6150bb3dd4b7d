"""The contract of a run: what will be done, with whom, at which price. Signed before anything is asked.

The server offers it, each party checks it against its holder's policy and signs its digest; from then on the
party answers nothing outside it (`runtime.session`). The signed contract is kept at both ends.
Its price binds by `Ledger.within`, also where the holder's ledger has room for more.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

from understudy.ground.check import plain_name, plain_names
from understudy.ground.errors import ConfigError, MessageError
from understudy.ground.pack import LIMIT
from understudy.privacy.accounts.budget import Budget

_LONGEST = 1 << 20  # bytes of a contract


@dataclass(frozen=True, kw_only=True)
class Contract:
    """One run. `schemas` are digests of what is public about each party's rows, `budgets` the run's price there.

    The parties are the keys of `schemas`, in the order in which they are asked; `message` is the largest message
    in bytes, either way. `columns` (`columns_of`) are there so that a party can say where a schema differs.
    """

    federation: str
    run: str
    protocol: str
    settings: Mapping[str, Any]
    schemas: Mapping[str, str]
    budgets: Mapping[str, Budget]
    message: int = LIMIT
    columns: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.schemas.keys() != self.budgets.keys() or not self.schemas:
            raise ConfigError("A contract names a schema and a budget for every party. Nothing was sent.")
        plain_names(self.schemas, "party", nothing="Nothing was sent.")
        plain_name(run=self.run, federation=self.federation, nothing="Nothing was sent.")

    @property
    def parties(self) -> tuple[str, ...]:
        """Who takes part, in order."""
        return tuple(self.schemas)

    @cached_property
    def text(self) -> str:
        """The one form that is signed: JSON, parties in order, settings sorted, no spaces."""
        budgets = {
            name: budget.to_dict() | {"epsilon": None if budget.epsilon == math.inf else budget.epsilon}
            for name, budget in self.budgets.items()
        }
        body = {
            "federation": self.federation, "run": self.run, "protocol": self.protocol, "message": self.message,
            "settings": _plain(self.settings), "columns": _plain(self.columns),
            "parties": [{"name": n, "schema": self.schemas[n], "budget": budgets[n]} for n in self.parties],
        }  # fmt: skip
        return json.dumps(body, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=False)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the text."""
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
            budgets = {str(party["name"]): _budget(party["budget"]) for party in parties}
            contract = cls(schemas=schemas, budgets=budgets, **body)
            same = contract.text == (text if isinstance(text, str) else text.decode())
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError, ConfigError):
            raise MessageError("This is not a contract.") from None
        named = all(isinstance(body[key], str) for key in ("federation", "run", "protocol"))
        listed = isinstance(contract.columns, dict) and all(
            isinstance(part, dict) for part in contract.columns.values()
        )
        if not (same and named and listed):
            raise MessageError("This is not a contract.")
        return contract

    def same_parties(self, schemas: Mapping[str, Any]) -> bool:
        """Whether these are the parties of the contract, each with the schema whose digest stands in it."""
        return {name: _digest(values) for name, values in schemas.items()} == dict(self.schemas)

    def same_settings(self, config: Mapping[str, Any]) -> bool:
        """Whether the settings of an ask are those of the contract."""
        return bool(_plain(config) == _plain(self.settings))


def digest_of(description: Any) -> str:
    """SHA-256 of what is public about a party's rows: a schema, or the features of a population."""
    values = description.to_dict() if hasattr(description, "to_dict") else asdict(description)
    return _digest(values)


def columns_of(description: Any) -> dict[str, str]:
    """Each column of a schema with a short digest of what is public about it; nothing for other descriptions."""
    columns = getattr(description, "columns", ())
    return {column.name: _digest(asdict(column) | {"kind": column.kind})[:16] for column in columns}


def _digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def _budget(values: Mapping[str, Any]) -> Budget:
    return Budget(**{**values, "epsilon": math.inf if values["epsilon"] is None else values["epsilon"]})


def _plain(value: Any) -> Any:
    """As JSON has it: tuples are lists."""
    return json.loads(json.dumps(value, allow_nan=False))
