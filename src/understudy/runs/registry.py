"""The protocols that a run can name, and what each is for.

A protocol is a module with `Config`, `build_party` and `train` (`protocols/base`). What it says of itself is
read here: `SAME_PEOPLE` (its parties hold columns of the same people, or rows of different ones), `KINDS` (of rows that
parties of the same people may bring: "table" alone unless it says more), `ARTEFACT`, `ONE_RELEASE` (a person pays once
for all parties together) and `forecast` (what a run will release; `planning` has a plainer one).
"""

import dataclasses
from collections.abc import Iterable, Mapping
from types import ModuleType
from typing import Any, get_args, get_type_hints

from understudy.ground.check import known_keys, nearest
from understudy.ground.errors import ConfigError
from understudy.protocols.aggregators import moments as shared_moments
from understudy.protocols.aggregators import protocol as two_aggregators
from understudy.protocols.core import Message
from understudy.protocols.dplt import protocol as dplt
from understudy.protocols.gans import central_gan, vd_gan_dpsgd, vd_gan_pate, verti_gan
from understudy.protocols.gram import protocol as gram
from understudy.protocols.moments import protocol as moments
from understudy.protocols.people import class_means, fed_stdg, fed_wae, gen_fl, lopub, sign_ds, wake_sleep
from understudy.protocols.people.one_report import protocol as one_report
from understudy.protocols.sgde import protocol as sgde
from understudy.protocols.tied import protocol as tied
from understudy.protocols.visits import protocol as visits
from understudy.runs.held import loaded
from understudy.runs.runfile import RunFile

ARRAYS = {"image", "series"}
PROTOCOLS: dict[str, ModuleType] = {
    "gram": gram,
    "moments": moments,
    "visits": visits,
    "tied": tied,
    "dplt": dplt,
    "verti-gan": verti_gan,
    "central-gan": central_gan,
    "vd-gan-dpsgd": vd_gan_dpsgd,
    "vd-gan-pate": vd_gan_pate,
    "sgde": sgde,
    "gen-fl": gen_fl,
    "sign-ds": sign_ds,
    "fed-wae": fed_wae,
    "wake-sleep": wake_sleep,
    "fed-stdg": fed_stdg,
    "lopub": lopub,
    "two-aggregators": two_aggregators,
    "shared-moments": shared_moments,
    "one-report": one_report,
    "class-means": class_means,
}


def protocol_named(name: str) -> ModuleType:
    """The protocol of that name. ConfigError names the nearest."""
    if name not in PROTOCOLS:
        raise ConfigError(
            f"There is no protocol {name!r}.{nearest(name, PROTOCOLS)} Known: {', '.join(PROTOCOLS)}."
        )
    return PROTOCOLS[name]


def of_rows(protocol: str, schemas: Mapping[str, Any], same_people: bool | None = None) -> str:
    """The protocol that a name means for these rows: `gram` is one name for tables, images and series.

    Images or series of different people are `moments`; beside a table, or of the same people, they are `tied`. Whether
    people are the same follows from the columns where nobody says it. Every other name means itself.
    """
    kinds = {getattr(schema, "kind", "table") for schema in schemas.values()}
    if protocol != "gram" or not kinds & ARRAYS or not kinds <= {"table", *ARRAYS}:
        return protocol
    if same_people is None:
        same_people = differ(schema.names for schema in schemas.values())
    return "tied" if same_people or "table" in kinds else "moments"


def file_of_rows(file: RunFile) -> RunFile:
    """The run file with the protocol that its name means for its parties' schemas."""
    if file.protocol != "gram":
        return file
    schemas = loaded({name: file.path(section.schema) for name, section in file.parties.items()})
    return dataclasses.replace(file, protocol=of_rows(file.protocol, schemas))


def config_for(protocol: str, settings: Mapping[str, Any]) -> Any:
    """The protocol's checked config from plain settings."""
    cls = protocol_named(protocol).Config
    known_keys(settings, (field.name for field in dataclasses.fields(cls)), f"settings of {protocol}")
    return cls(**settings)


def people_of(module: ModuleType) -> bool | None:
    """Whether the protocol's parties hold columns of the same people, or rows of different ones; None: either."""
    same: bool | None = getattr(module, "SAME_PEOPLE", True)
    return same


def same_people(module: ModuleType, columns: Iterable[Iterable[str]]) -> bool:
    """Whether the holders of these columns are to hold the same people.

    A protocol that does either goes by the columns: other ones are of the same people, the same ones of other people.
    """
    same = people_of(module)
    return differ(columns) if same is None else same


def differ(columns: Iterable[Iterable[str]]) -> bool:
    """Whether the holders of these columns have different ones."""
    return len({tuple(names) for names in columns}) > 1


def require_priced(
    module: ModuleType, schemas: Mapping[str, Any], config: Any, elsewhere: Iterable[str]
) -> None:
    """Refuse to price people as if they were with one holder, where a holder says that they are `elsewhere` too."""
    same = same_people(module, (schema.names for schema in schemas.values()))
    for name in elsewhere:
        if len(schemas) > 1 and not same and getattr(config, "most_holders", 1) == 1:
            raise ConfigError(
                f"{name} says that other holders may also hold its people: set most_holders, how many of the "
                f"{len(schemas)} may hold one person, so that the price covers them. Nothing was charged."
            )


def agreed(module: ModuleType, config: Any) -> dict[str, Any]:
    """What a holder who knows the settings tells its party by itself, so that no server has to be believed."""
    options: dict[str, Any] = module.agreed(config) if hasattr(module, "agreed") else {}
    return options


def messages_of(module: ModuleType) -> tuple[type[Message], ...]:
    """The protocol's messages: those of the parties that its `build_party` says it returns."""
    built = get_type_hints(module.build_party)["return"]
    parties = get_args(built) or (built,)
    return tuple(dict.fromkeys(message for party in parties for message in party.messages))


def require_kinds(protocol: str, schemas: Mapping[str, object], *, visits_alone: bool = False) -> None:
    """Refuse a party that brings series or images where the protocol takes tables alone (`KINDS` says more).

    `visits_alone`: refuse people with many events, and leave what else is wrong to the protocol.
    """
    taken: tuple[str, ...] = getattr(protocol_named(protocol), "KINDS", ("table",))
    for name, schema in schemas.items():
        kind = getattr(schema, "kind", "table")
        if kind not in taken and (kind == "visits" or not visits_alone):
            raise ConfigError(
                f"{name} holds rows of the kind {kind!r}, and {protocol} takes {' or '.join(taken)}. "
                "Nothing was charged."
            )


def artefact_of(module: ModuleType) -> str:
    """What the protocol trains: a "generator" or a "model"."""
    return str(getattr(module, "ARTEFACT", "generator"))
