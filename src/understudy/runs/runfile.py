"""The run file: one TOML text that says who takes part, with what, under which
protocol, at what price.

docs/commands.md has every key. Every key is checked before a row is read, and paths are
relative to the run file. That no two parties of a horizontal partition hold the same
person is assumed, and the statement says so; a party that knows better says
`people_are_elsewhere = true`, and the run is refused until its settings say with how
many of the parties a person may be (`max_holders_per_person`), and that is priced. A
ledger that exists keeps its lifetime budget: a run file that states another one, or
allows the run more than that, is refused; `understudy ledger budget` changes it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tomli_w

from understudy.data.reading.sources import (
    SUFFIX,
    WRITTEN,
    TableSource,
    is_url,
    require_no_secret,
)
from understudy.ground.check import known_keys, plain_names
from understudy.ground.durable import load_toml
from understudy.ground.errors import ConfigError, Effect
from understudy.privacy.accounts.budget import Budget

if TYPE_CHECKING:
    from understudy.data.kinds import PublicSchema


@dataclass(frozen=True, kw_only=True)
class PartySection:
    table: str
    schema: str
    epsilon: float
    delta: float
    against: str = "anyone"
    noise: str = "secure"
    ledger: str | None = None
    ledger_epsilon: float | None = None
    ledger_delta: float | None = None
    people_are_elsewhere: bool = False
    aggregates: bool = False
    header: bool | None = None
    separator: str | None = None
    encoding: str | None = None
    decimal: str | None = None
    missing: tuple[str | float, ...] = ()
    sheet: str | None = None
    query: str | None = None
    password: str | None = None

    def source(self, folder: Path) -> Path | TableSource:
        """Where the rows are, and how they are read if that is stated; paths are
        relative to this folder.
        """
        reading: dict[str, Any] = {key: getattr(self, key) for key in _READING}
        stated = {
            key: value for key, value in reading.items() if value not in (None, "", ())
        }
        if not stated and not is_url(self.table):
            require_no_secret(self.table)
            return (folder / self.table).resolve()
        if self.table.endswith(SUFFIX):
            return replace(TableSource.load((folder / self.table).resolve()), **stated)
        return TableSource(table=self.table, **stated).within(folder)

    def budget(self) -> Budget:
        return Budget(epsilon=self.epsilon, delta=self.delta, against=self.against)

    def total(self) -> Budget:
        """What the holder allows in all its runs: the lifetime budget of a new
        ledger.
        """
        epsilon = self.epsilon if self.ledger_epsilon is None else self.ledger_epsilon
        delta = self.delta if self.ledger_delta is None else self.ledger_delta
        return Budget(epsilon=epsilon, delta=delta, against=self.against)

    def clash(self, lifetime: Budget) -> str | None:
        """Where this disagrees with a lifetime budget, in words: another one is stated,
        or the run may cost more.
        """
        stated = {
            "ledger_epsilon": self.ledger_epsilon,
            "ledger_delta": self.ledger_delta,
        }
        allowed = {"ledger_epsilon": lifetime.epsilon, "ledger_delta": lifetime.delta}
        for key, value in stated.items():
            if value is not None and value != allowed[key]:
                return f"{key} is {value:g}"
        binds = lifetime.delta <= self.delta and lifetime.against in (
            "anyone",
            self.against,
        )
        return (
            f"this run may cost {self.budget()}"
            if binds and self.epsilon > lifetime.epsilon
            else None
        )


@dataclass(frozen=True, kw_only=True)
class RunFile:
    """A run file, read and checked. `folder` is what its paths are relative to."""

    protocol: str
    parties: Mapping[str, PartySection]
    settings: Mapping[str, Any]
    out: str
    rows: int | None = None
    people: int | None = None
    holdout: str | None = None
    public: str | None = None
    shared_columns: Mapping[str, str] = field(default_factory=dict)
    tune: Mapping[str, Any] = field(default_factory=dict)
    folder: Path = Path()

    @classmethod
    def load(cls, path: str | Path, *, elsewhere: bool | None = False) -> "RunFile":
        """Read and check a run file. ConfigError names the key and the nearest right
        one. `elsewhere`: the holders are on machines of their own, and so are their
        tables; None: where no table is named.
        """
        path = Path(path)
        data = load_toml(path, "the run file")
        if elsewhere is None:
            bodies = (
                data["parties"].values()
                if isinstance(data.get("parties"), dict)
                else ()
            )
            elsewhere = not any(
                isinstance(body, dict) and "table" in body for body in bodies
            )
        return cls.from_dict(
            data, folder=path.parent, name=path.name, elsewhere=elsewhere
        )

    @classmethod
    def from_dict(
        cls,
        data: Mapping[str, Any],
        *,
        folder: Path,
        name: str = "run file",
        elsewhere: bool = False,
    ) -> "RunFile":
        known_keys(data, TOP, name)
        for key, kind, word in (
            ("protocol", str, _TEXT),
            ("out", str, _TEXT),
            ("parties", dict, _TABLE),
        ):
            if not isinstance(data.get(key), kind):
                raise ConfigError(f'{name}: "{key}" is missing or not {word}.')
        for key in ("rows", "people"):
            count = data.get(key)
            if count is not None and (
                not isinstance(count, int) or isinstance(count, bool) or count < 1
            ):
                raise ConfigError(
                    f'{name}: "{key}" must be a whole number of at least 1, not '
                    f"{count!r}."
                )
        for key in ("holdout", "public"):
            if not isinstance(data.get(key), str | None):
                raise ConfigError(f'{name}: "{key}" must be a text, not {data[key]!r}.')
            if is_url(data.get(key) or ""):
                raise ConfigError(
                    f'{name}: "{key}" is a file; for rows of a database name a '
                    f"NAME{SUFFIX}.",
                    effect=Effect.NOTHING_READ,
                )
            require_no_secret(data.get(key) or "")
        shared = data.get("shared_columns", {})
        if not isinstance(shared, dict) or not all(
            isinstance(owner, str) for owner in shared.values()
        ):
            raise ConfigError(
                f'{name}: "shared_columns" must be a table: of each column, whose copy '
                'is used, or "each".'
            )
        settings = data.get("settings", {})
        tune = data.get("tune", {})
        for key, value in (("settings", settings), ("tune", tune)):
            if not isinstance(value, dict):
                raise ConfigError(f'{name}: "{key}" must be {_TABLE}.')
        if both := sorted(settings.keys() & tune.keys()):
            raise ConfigError(
                f'{name}: "{both[0]}" stands in "settings" and in "tune".'
            )
        if tune and elsewhere:
            raise ConfigError(
                f'{name}: "tune" is for holders in one process (`understudy run`).',
                effect=Effect.NOTHING_SENT,
            )
        if "rules" in data:
            if "rules" in settings:
                raise ConfigError(
                    f'{name}: rules stand once, as [[rules]] or in "settings".'
                )
            settings = settings | {"rules": data["rules"]}
        if not data["parties"]:
            raise ConfigError(
                f"{name}: there is no party. Add a table [parties.NAME] for each "
                "holder."
            )
        plain_names(data["parties"], "party", effect=Effect.NOTHING_READ_OR_CHARGED)
        parties = {
            key: _read_section(body, f"{name}: parties.{key}", elsewhere)
            for key, body in data["parties"].items()
        }
        plain = {key: data.get(key) for key in ("protocol", "out", *_PLAIN)}
        return cls(
            **plain,  # type: ignore[arg-type]
            shared_columns=shared,
            settings=settings,
            tune=tune,
            parties=parties,
            folder=folder,
        )

    def path(self, text: str) -> Path:
        return (self.folder / text).resolve()

    def source(self, party: str) -> "Path | TableSource":
        return self.parties[party].source(self.folder)

    def drafts(self) -> "dict[str, PublicSchema]":
        """The schema of each party's rows, whether or not a person has confirmed it."""
        # loads pandas, and a command starts without it
        from understudy.data.kinds import load_schema

        return {
            name: load_schema(self.path(section.schema))
            for name, section in self.parties.items()
        }

    def drafts_in_run(self) -> "dict[str, PublicSchema]":
        """The same, with the columns that each party brings to the run
        (`data.shared_columns`).
        """
        from understudy.data.shared_columns import run_schemas

        return run_schemas(self.drafts(), self.shared_columns)

    def schemas_in_run(self) -> "dict[str, PublicSchema]":
        """`schemas`, with the columns that each party brings to the run."""
        from understudy.data.shared_columns import run_schemas

        return run_schemas(self.schemas(), self.shared_columns)

    def schemas(self) -> "dict[str, PublicSchema]":
        """What is public of each party's rows. DraftSchemaError where a person has not
        confirmed it yet, SchemaError where it has ids and does not say whose rows these
        are.
        """
        schemas = self.drafts()
        for name, schema in schemas.items():
            which = f"the schema of {name} ({self.parties[name].schema})"
            schema.require_public(which)
            schema.require_unit(which)
        return schemas

    def ledger_path(self, party: str) -> Path:
        return self.path(self.parties[party].ledger or f"ledgers/{party}.ledger")

    def to_toml(self) -> str:
        """The run as it was carried out, paths made absolute: kept beside its
        artefacts.
        """
        body: dict[str, Any] = {
            "protocol": self.protocol,
            "out": str(self.path(self.out)),
        }
        body |= {
            key: count
            for key in ("rows", "people")
            if (count := getattr(self, key)) is not None
        }
        for key in ("holdout", "public"):
            table = getattr(self, key)
            if table is not None:
                body[key] = str(self.path(table))
        if self.shared_columns:
            body["shared_columns"] = dict(self.shared_columns)
        body["settings"] = dict(self.settings)
        if self.tune:
            body["tune"] = dict(self.tune)
        body["parties"] = {name: self._written(name) for name in self.parties}
        return tomli_w.dumps(body)

    def _written(self, party: str) -> dict[str, Any]:
        section = self.parties[party]
        values = vars(section) | {"schema": str(self.path(section.schema))}
        if section.table:  # and how it is read, also where a file beside it says so
            source = self.source(party)
            values |= (
                vars(source)
                if isinstance(source, TableSource)
                else {"table": str(source)}
            )
        if section.table or section.aggregates:
            values["ledger"] = str(self.ledger_path(party))
        else:
            del values["noise"]  # a holder elsewhere chooses it itself
        plain = [
            key for key, value in values.items() if value is False and key != "header"
        ]
        return {
            key: value
            for key, value in values.items()
            if value not in (None, "", ()) and key not in plain
        }


_PLAIN = ("rows", "people", "holdout", "public")
TOP = (
    "protocol",
    "out",
    *_PLAIN,
    "rules",
    "shared_columns",
    "settings",
    "tune",
    "parties",
)
_READING = (*WRITTEN, "query", "password")
_HOLDERS_OWN = (
    "table",
    "ledger",
    "ledger_epsilon",
    "ledger_delta",
    "noise",
    "people_are_elsewhere",
    "aggregates",
    *_READING,
)
_NUMBER = (int | float, "a number")
_KINDS: dict[str, Any] = dict.fromkeys(
    ("epsilon", "delta", "ledger_epsilon", "ledger_delta"), _NUMBER
) | {
    "people_are_elsewhere": (bool, "true or false"),
    "aggregates": (bool, "true or false"),
    "header": (bool, "true or false"),
    "missing": (list, "a list of texts and numbers"),
}
_TEXT = "a text"
_TABLE = "a table of keys"


def _read_section(body: Any, where: str, elsewhere: bool) -> PartySection:
    if not isinstance(body, dict):
        raise ConfigError(f"{where} must be {_TABLE}.")
    if elsewhere and (not_allowed := [key for key in _HOLDERS_OWN if key in body]):
        raise ConfigError(
            f'{where}: "{not_allowed[0]}" is for its holder to say when it joins '
            "(`understudy join`).",
            effect=Effect.NOTHING_SENT,
        )
    known_keys_of = {field.name: field for field in fields(PartySection)}
    known_keys(body, known_keys_of, where)
    aggregates = body.get("aggregates") is True
    if aggregates and (
        not_allowed := [
            key for key in ("table", *_READING, "people_are_elsewhere") if key in body
        ]
    ):
        raise ConfigError(
            f'{where}: who aggregates holds no rows, so no "{not_allowed[0]}".',
            effect=Effect.NOTHING_READ_OR_CHARGED,
        )
    needed = () if elsewhere or aggregates else ("table",)
    missing = [
        key for key in (*needed, "schema", "epsilon", "delta") if key not in body
    ]
    if missing:
        raise ConfigError(
            f'{where}: "{missing[0]}" is missing.',
            effect=Effect.NOTHING_READ_OR_CHARGED,
        )
    for key, value in body.items():
        kind, word = _KINDS.get(key, (str, _TEXT))
        if not isinstance(value, kind) or isinstance(value, bool) is not (kind is bool):
            shown = "" if key == "password" else f", not {value!r}"
            raise ConfigError(f'{where}: "{key}" must be {word}{shown}.')
    values: dict[str, Any] = (
        {"table": ""} | body | {"missing": tuple(body.get("missing", ()))}
    )
    section = PartySection(**values)
    try:
        if section.table:
            section.source(Path())
        section.budget()
        clash = section.clash(section.total())
    except ConfigError as error:
        raise ConfigError(
            f"{where}: {error.message}", effect=Effect.NOTHING_READ_OR_CHARGED
        ) from None
    if clash:
        raise ConfigError(
            f"{where}: {clash}, but all runs together {section.total()} "
            "(ledger_epsilon, ledger_delta).",
            effect=Effect.NOTHING_READ_OR_CHARGED,
        )
    return section
