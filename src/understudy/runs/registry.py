"""The protocols that a run can name, each a record (`protocols.protocol`), and their
settings in words.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from understudy.ground.check import nearest
from understudy.ground.errors import ConfigError, Effect
from understudy.ground.settings import declared
from understudy.protocols.aggregators import moments as shared_moments
from understudy.protocols.aggregators import protocol as two_aggregators
from understudy.protocols.class_means import protocol as class_means
from understudy.protocols.gram import protocol as gram
from understudy.protocols.moments import protocol as moments
from understudy.protocols.one_report import protocol as one_report
from understudy.protocols.papers.fed_stdg import protocol as fed_stdg
from understudy.protocols.papers.fed_wae import lopub, wake_sleep
from understudy.protocols.papers.fed_wae import protocol as fed_wae
from understudy.protocols.papers.gen_fl import protocol as gen_fl
from understudy.protocols.papers.sgde import protocol as sgde
from understudy.protocols.papers.sign_ds import protocol as sign_ds
from understudy.protocols.papers.vd_gan import pate as vd_gan_pate
from understudy.protocols.papers.vd_gan import protocol as vd_gan
from understudy.protocols.papers.verti_gan import central_gan, dplt
from understudy.protocols.papers.verti_gan import protocol as verti_gan
from understudy.protocols.protocol import Protocol, differ
from understudy.protocols.tied import protocol as tied
from understudy.protocols.visits import protocol as visits
from understudy.runs.runfile import RunFile

ARRAYS = {"image", "series"}
PROTOCOLS: dict[str, Protocol] = {
    one.PROTOCOL.name: one.PROTOCOL
    for one in (
        gram,
        moments,
        visits,
        tied,
        dplt,
        verti_gan,
        central_gan,
        vd_gan,
        vd_gan_pate,
        sgde,
        gen_fl,
        sign_ds,
        fed_wae,
        wake_sleep,
        fed_stdg,
        lopub,
        two_aggregators,
        shared_moments,
        one_report,
        class_means,
    )
}


def protocol_named(name: str) -> Protocol:
    """The protocol of that name. ConfigError names the nearest."""
    if name not in PROTOCOLS:
        raise ConfigError(
            f"There is no protocol {name!r}.{nearest(name, PROTOCOLS)} Known: "
            f"{', '.join(PROTOCOLS)}."
        )
    return PROTOCOLS[name]


def resolve_protocol(
    protocol: str, schemas: Mapping[str, Any], same_people: bool | None = None
) -> str:
    """The protocol that a name means for these rows: `gram` is one name for tables,
    images and series. Images or series of different people are `moments`; beside a
    table, or of the same people, they are `tied`. Whether people are the same follows
    from the columns where nobody says it. Every other name means itself.
    """
    kinds = {getattr(schema, "kind", "table") for schema in schemas.values()}
    if protocol != "gram" or not kinds & ARRAYS or not kinds <= {"table", *ARRAYS}:
        return protocol
    if same_people is None:
        same_people = differ(schema.names for schema in schemas.values())
    return "tied" if same_people or "table" in kinds else "moments"


def resolve_run_file(file: RunFile) -> RunFile:
    """The run file with the protocol that its name means for its parties' schemas."""
    if file.protocol != "gram":
        return file
    return dataclasses.replace(
        file, protocol=resolve_protocol(file.protocol, file.drafts_in_run())
    )


def require_priced(
    protocol: Protocol,
    schemas: Mapping[str, Any],
    config: Any,
    elsewhere: Iterable[str],
) -> None:
    """Refuse to price people as if they were with one holder, where a holder says that
    they are `elsewhere` too.
    """
    same_people = protocol.holds_same_people(
        schema.names for schema in schemas.values()
    )
    for name in elsewhere:
        if (
            len(schemas) > 1
            and not same_people
            and getattr(config, "max_holders_per_person", 1) == 1
        ):
            raise ConfigError(
                f"{name} says that other holders may also hold its people: set "
                f"max_holders_per_person, how many of the {len(schemas)} may hold "
                "one person, so that the price covers them.",
                effect=Effect.NOTHING_CHARGED,
            )


@dataclasses.dataclass(frozen=True)
class Setting:
    name: str
    default: str
    values: str
    meaning: str


def settings_of(protocol: str) -> list[Setting]:
    """Every setting of a protocol. ConfigError names the nearest protocol where there
    is none of that name.
    """
    record = protocol_named(protocol)
    return [
        Setting(name, _plain(field.default), takes.description, meaning)
        for name, field in record.settings.items()
        for takes, meaning in [declared(record.config, name)]
    ]


def _plain(value: object) -> str:
    """A default as a run file would have it."""
    if value is None or value is dataclasses.MISSING:
        return "–"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return f"[{', '.join(map(_plain, value))}]"
    if isinstance(value, str):
        return f'"{value}"'
    return f"{value:g}" if isinstance(value, float) else str(value)
