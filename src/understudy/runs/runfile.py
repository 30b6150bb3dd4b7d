"""The run file: one TOML text that says who takes part, with what, under which protocol, at what price.

    protocol = "verti-gan"
    out = "runs/joint"              # where everything is written
    rows = 5000                     # synthetic rows to draw; default: as many as there are shared people
    people = 4000                   # about how many people, as far as that is public: for `understudy plan` alone

    [settings]                      # of the protocol; unknown keys are refused
    rounds = 300

    [parties.clinic]
    table = "clinic.csv"            # CSV, TSV, Excel, Parquet, or the URL of a database with its `query`; how it is
                                    # written, if that cannot be seen: separator, encoding, decimal, missing, sheet
    schema = "clinic.toml"
    epsilon = 2.0                   # what this run may cost at this holder
    delta = 1e-6
    ledger = "clinic.ledger"        # the holder's own; default: ledgers/<party>.ledger
    ledger_epsilon = 8.0            # what all runs together may cost, for a new ledger; default: this run's
    ledger_delta = 1e-6
    noise = "secure"                # "fast": torch's generator, not secure, and named in the card
    people_are_elsewhere = false    # over rows: true where other holders may have some of its people, too
    aggregates = false              # true, and no table: a party without rows, which adds up other people's shares

A protocol over rows is written alike: each person of a party may then have several rows, and the schema names
the column that says who. That no two parties hold the same person is assumed, and the statement says so. A party
that knows better says `people_are_elsewhere = true`; the run is then refused until its settings say with how many of
the parties a person may be (`most_holders`), and that is priced. `rows` means nothing where a classifier is trained;
there `holdout` may name a table of public rows to test on. Where an autoencoder is trained, `public` may name public
rows for it to begin from.

    protocol = "sign-ds"
    out = "runs/churn"
    holdout = "public_test.csv"

    [settings]
    target = "churned"
    epsilon_total = 8.0             # of all reports of a person together
    cap = 2                         # so many at most

What every row keeps across holders' columns stands in `[[rules]]` (`data/rules.py`; a setting of `gram` and of
`visits`); rules on the columns of one holder belong into its schema.

    [[rules]]
    when = "employed == false"
    then = "wage == 0"

A ledger that exists keeps its lifetime budget. A run file that states another one, or allows the run more than that, is
refused; `understudy ledger budget` changes it.

Where the holders are elsewhere (`understudy serve`), a party has no `table`, `ledger` and `noise` here: those are
its own. Paths are relative to the run file. Every key is checked before a row is read.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tomli_w

from understudy.data.reading.sources import SUFFIX, WRITTEN, TableSource, is_url, require_no_secret
from understudy.ground.bounded import load_toml
from understudy.ground.check import known_keys, plain_names
from understudy.ground.errors import ConfigError
from understudy.privacy.accounts.budget import Budget

if TYPE_CHECKING:
    from understudy.data.described import PublicSchema


@dataclass(frozen=True, kw_only=True)
class PartySection:
    """What a run file says about one holder."""

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
    separator: str | None = None
    encoding: str | None = None
    decimal: str | None = None
    missing: tuple[str | float, ...] = ()
    sheet: str | None = None
    query: str | None = None
    password: str | None = None

    def source(self, folder: Path) -> Path | TableSource:
        """Where the rows are, and how they are read if that is stated; paths are relative to this folder."""
        stated = {key: value for key in _READING if (value := getattr(self, key))}
        if not stated and not is_url(self.table):
            require_no_secret(self.table)
            return (folder / self.table).resolve()
        if self.table.endswith(SUFFIX):
            return replace(TableSource.load((folder / self.table).resolve()), **stated)
        return TableSource(table=self.table, **stated).within(folder)

    def budget(self) -> Budget:
        """What this run may cost here."""
        return Budget(epsilon=self.epsilon, delta=self.delta, against=self.against)

    def total(self) -> Budget:
        """What the holder allows in all its runs: the lifetime budget of a new ledger."""
        epsilon = self.epsilon if self.ledger_epsilon is None else self.ledger_epsilon
        delta = self.delta if self.ledger_delta is None else self.ledger_delta
        return Budget(epsilon=epsilon, delta=delta, against=self.against)

    def clash(self, lifetime: Budget) -> str | None:
        """Where this disagrees with a lifetime budget, in words: another one is stated, or the run may cost more."""
        stated = {"ledger_epsilon": self.ledger_epsilon, "ledger_delta": self.ledger_delta}
        allowed = {"ledger_epsilon": lifetime.epsilon, "ledger_delta": lifetime.delta}
        for key, value in stated.items():
            if value is not None and value != allowed[key]:
                return f"{key} is {value:g}"
        binds = lifetime.delta <= self.delta and lifetime.against in ("anyone", self.against)
        return f"this run may cost {self.budget()}" if binds and self.epsilon > lifetime.epsilon else None


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
    folder: Path = Path()

    @classmethod
    def load(cls, path: str | Path, *, elsewhere: bool | None = False) -> "RunFile":
        """Read and check a run file. ConfigError names the key and the nearest right one.

        `elsewhere`: the holders are on machines of their own, and so are their tables; None: where no table is named.
        """
        path = Path(path)
        data = load_toml(path, "the run file")
        if elsewhere is None:
            bodies = data["parties"].values() if isinstance(data.get("parties"), dict) else ()
            elsewhere = not any(isinstance(body, dict) and "table" in body for body in bodies)
        return cls.from_dict(data, folder=path.parent, name=path.name, elsewhere=elsewhere)

    @classmethod
    def from_dict(
        cls, data: Mapping[str, Any], *, folder: Path, name: str = "run file", elsewhere: bool = False
    ) -> "RunFile":
        """The same from plain values."""
        known_keys(data, TOP, name)
        for key, kind in (("protocol", str), ("out", str), ("parties", dict)):
            if not isinstance(data.get(key), kind):
                raise ConfigError(f'{name}: "{key}" is missing or not {_WORDS[kind]}.')
        for key in ("rows", "people"):
            count = data.get(key)
            if count is not None and (not isinstance(count, int) or isinstance(count, bool) or count < 1):
                raise ConfigError(f'{name}: "{key}" must be a whole number of at least 1, not {count!r}.')
        for key in ("holdout", "public"):
            if not isinstance(data.get(key), str | None):
                raise ConfigError(f'{name}: "{key}" must be a text, not {data[key]!r}.')
            if is_url(data.get(key) or ""):
                raise ConfigError(
                    f'{name}: "{key}" is a file; for rows of a database name a NAME{SUFFIX}. Nothing was read.'
                )
            require_no_secret(data.get(key) or "")
        settings = data.get("settings", {})
        if not isinstance(settings, dict):
            raise ConfigError(f'{name}: "settings" must be a table of keys.')
        if "rules" in data:
            if "rules" in settings:
                raise ConfigError(f'{name}: rules stand once, as [[rules]] or in "settings".')
            settings = settings | {"rules": data["rules"]}
        if not data["parties"]:
            raise ConfigError(f"{name}: there is no party. Add a table [parties.NAME] for each holder.")
        plain_names(data["parties"], "party", nothing="Nothing was read or charged.")
        parties = {
            party: _section(body, f"{name}: parties.{party}", elsewhere)
            for party, body in data["parties"].items()
        }
        return cls(
            protocol=data["protocol"],
            out=data["out"],
            rows=data.get("rows"),
            people=data.get("people"),
            holdout=data.get("holdout"),
            public=data.get("public"),
            settings=settings,
            parties=parties,
            folder=folder,
        )

    def path(self, text: str) -> Path:
        """A path of this run file, made absolute."""
        return (self.folder / text).resolve()

    def source(self, party: str) -> "Path | TableSource":
        """Where this party's rows are, paths made absolute."""
        return self.parties[party].source(self.folder)

    def _read_by(self, party: str) -> dict[str, Any]:
        """The table, and how it is read, also where a file beside it says so."""
        source = self.source(party)
        if not isinstance(source, TableSource):
            return {"table": str(source)}
        return {key: value for key, value in vars(source).items() if value not in (None, ())}

    def schemas(self) -> "dict[str, PublicSchema]":
        """What is public of each party's rows. DraftSchemaError where a person has not confirmed it yet."""
        from understudy.data.kinds import load_schema  # loads pandas, and a command starts without it

        found = {name: load_schema(self.path(section.schema)) for name, section in self.parties.items()}
        for name, schema in found.items():
            schema.require_public(f"the schema of {name} ({self.parties[name].schema})")
        return found

    def ledger_path(self, party: str) -> Path:
        """Where this party's ledger lies."""
        return self.path(self.parties[party].ledger or f"ledgers/{party}.ledger")

    def to_toml(self) -> str:
        """The run as it was carried out, paths made absolute: kept beside its artefacts."""
        body: dict[str, Any] = {"protocol": self.protocol, "out": str(self.path(self.out))}
        body |= {key: count for key in ("rows", "people") if (count := getattr(self, key)) is not None}
        for key in ("holdout", "public"):
            if (table := getattr(self, key)) is not None:
                body[key] = str(self.path(table))
        body["settings"] = dict(self.settings)
        body["parties"] = {
            name: {
                key: value
                for key, value in vars(section).items()
                if value not in (None, "", ())
                and value is not False
                # a holder elsewhere chooses its noise itself
                and (key != "noise" or section.table or section.aggregates)
            }
            | {"schema": str(self.path(section.schema))}
            | (self._read_by(name) if section.table else {})
            | ({"ledger": str(self.ledger_path(name))} if section.table or section.aggregates else {})
            for name, section in self.parties.items()
        }
        return tomli_w.dumps(body)


TOP = ("protocol", "out", "rows", "people", "holdout", "public", "rules", "settings", "parties")
_READING = (*WRITTEN, "query", "password")
_HOLDERS_OWN = (
    "table", "ledger", "ledger_epsilon", "ledger_delta", "noise", "people_are_elsewhere", "aggregates", *_READING,
)  # fmt: skip
_NUMBER = (int | float, "a number")
_KINDS: dict[str, Any] = dict.fromkeys(("epsilon", "delta", "ledger_epsilon", "ledger_delta"), _NUMBER) | {
    "people_are_elsewhere": (bool, "true or false"),
    "aggregates": (bool, "true or false"),
    "missing": (list, "a list of texts and numbers"),
}
_WORDS = {str: "a text", dict: "a table of keys"}


def _section(body: Any, where: str, elsewhere: bool) -> PartySection:
    if not isinstance(body, dict):
        raise ConfigError(f"{where} must be a table of keys.")
    if elsewhere and (own := [key for key in _HOLDERS_OWN if key in body]):
        raise ConfigError(
            f'{where}: "{own[0]}" is for its holder to say when it joins (`understudy join`). Nothing was sent.'
        )
    known = {field.name: field for field in fields(PartySection)}
    known_keys(body, known, where)
    aggregates = body.get("aggregates") is True
    if aggregates and (own := [key for key in ("table", *_READING, "people_are_elsewhere") if key in body]):
        raise ConfigError(
            f'{where}: who aggregates holds no rows, so no "{own[0]}". Nothing was read or charged.'
        )
    needed = (
        ("schema", "epsilon", "delta") if elsewhere or aggregates else ("table", "schema", "epsilon", "delta")
    )
    if missing := [key for key in needed if key not in body]:
        raise ConfigError(f'{where}: "{missing[0]}" is missing. Nothing was read or charged.')
    for key, value in body.items():
        kind, word = _KINDS.get(key, (str, "a text"))
        if not isinstance(value, kind) or isinstance(value, bool) is not (kind is bool):
            given = "" if key == "password" else f", not {value!r}"
            raise ConfigError(f'{where}: "{key}" must be {word}{given}.')
    told: dict[str, Any] = {"table": ""} | body | {"missing": tuple(body.get("missing", ()))}
    section = PartySection(**told)
    try:
        if section.table:
            section.source(Path())
        section.budget()
        clash = section.clash(section.total())
    except ConfigError as error:
        raise ConfigError(f"{where}: {error} Nothing was read or charged.") from None
    if clash:
        raise ConfigError(
            f"{where}: {clash}, but all runs together {section.total()} (ledger_epsilon, ledger_delta). "
            "Nothing was read or charged."
        )
    return section
