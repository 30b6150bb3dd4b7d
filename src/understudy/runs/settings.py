"""The settings of every protocol, with meaning, default and range: `understudy protocols NAME`, and docs/settings.md.

Names, types and defaults are those of the protocol's `Config`. Ranges are what `Config` itself says when it refuses a
value that nobody would choose. Meanings stand below, where several protocols share a word, and else in the docstring of
the `Config`.
"""

import dataclasses
import inspect
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from understudy.ground.errors import UnderstudyError
from understudy.runs.registry import PROTOCOLS, protocol_named

_ABSURD: tuple[Any, ...] = (-1e300, "?", -1, 10**400, (-1.0,), ("?",))
_REQUIRED = {"epsilon_total": 1.0}  # what some configs cannot be without

WORDS = {
    "components": "products in the mixture that is fitted",
    "steps": "the most steps of the fit",
    "rate": "learning rate of the fit",
    "target": "the column to predict from the others",
    "at_least": "over rows: the run continues while at least this many holders are there; without it all must stay",
    "most_holders": "how many holders of the same columns may hold the same person, as the holders state it",
    "colluding": "ε still holds if this many holders share with each other all that they know",
    "chunk": "people per message",
    "private": "false: no noise, for rehearsals on public rows alone",
    "device": "cpu, cuda, or auto",
    "seed": "seed of what is public (initial weights, batches of synthetic rows), never of noise",
    "rounds": "rounds of training",
    "critic_steps": "noised steps of a critic in a round",
    "batch": "people in a step, on average",
    "learning_rate": "learning rate",
    "penalty": "weight of the penalty term of the loss",
    "latent": "size of the latent space; without it as in the paper",
    "common": "sizes of the common layers; without it as in the paper",
    "critic_hidden": "sizes of the critic's layers; without it as in the paper",
    "checkpoint_every": "rounds between two checkpoints",
    "clip_norm": "the longest gradient of one person",
    "rows": "synthetic rows that are judged in a round",
    "warm_up": "rounds of training before the first shared round",
    "hidden": "width of the hidden layers",
    "epochs": "local epochs of a person",
    "optimizer": "local optimiser",
    "cohort": "people who report in a round",
    "cap": "the most reports of one person",
    "epsilon": "price of one report; or give epsilon_total",
    "epsilon_total": "price of all reports of a person together",
    "delta": "δ of the price",
    "reporter": "the local mechanism",
    "top": "share of coordinates that count as the largest",
    "chosen": "coordinates in a report; without it as many as `share` allows",
    "share": "expected share of a report's coordinates that are among the largest; a small ε cannot reach a large one",
    "split": "FedSel: part of ε for the choice",
    "clip": "bound of a value",
    "global_rate": "step of the common model; without it as in the paper",
    "poison": "a simulation: people who lie",
    "most_rows": "rows of a person that are used in a round",
    "pretrain": "steps on public rows before anybody is asked",
    "evaluate_every": "rounds between two tests on public held-out rows",
    "model": "the classifier",
    "fine": "share of the budget for fine tables, by which levels are chosen where none are declared; 0: even bins",
    "refined": "how many other pairs are measured a second time: the strongest by the first release",
    "scouting": "share of the budget for all pairs, where some are measured twice; by default .8, less for few people",
    "public_people": "about how many people there are, if that is public; for few, a target's pairs get more budget",
    "chosen_triples": "three-way tables of the target, chosen by the first release; 4 with many public people",
    "triples": "further three-way tables to measure, each with columns of one holder only",
    "plus": "DPLT+ in place of DPLT",
    "clique": "the most columns in a group: a column and those that it depends on",
    "cells": "the most cells of a table",
    "average": "share of the rounds, the last ones, over which the decoder is averaged",
    "dreams": "batches that teach the encoder in a round",
    "first_dreams": "batches that teach the encoder before the first round",
    "dream_batch": "rows of such a batch",
    "adaptive": "whether γ is lowered by a noisy flag; without it, where signs are sent",
    "magnitude_share": "share of a report's ε for that flag",
    "decay": "what γ is multiplied by when it is lowered",
    "patience": "rounds before γ is lowered again",
    "sgde.kind": "a network for each class, one-way tables of each, or sums of all, which a pool adds",
    "beta": "weight of the latent term of the loss",
    "networks": "kinds of networks that the pool takes",
    "largest": "the most bytes of an offer",
    "labels": "pull: only these classes; empty for all",
    "silos": "pull: only offers of these silos; empty for all",
    "cheapest": "pull: only offers with at most this ε",
    "leave_out": "pull: whether offers that look poisoned are left out",
    "poison_share": "share of the silos that lie",
    "ratio_noise": "noise on a client's class counts",
    "rows_are_people": "each row is a different person, who has no other row",
    "bound": "how the mechanism's parameter follows from ε: by the paper, or exactly",
    "two-aggregators.epsilon": "price of a person's whole report",
    "two-aggregators.batch": "people whose shares are added up at a time",
    "shared-moments.epsilon": "price of a person's whole upload",
    "shared-moments.batch": "people whose shares are added up at a time",
    "shared-moments.features": "how many coefficients of the frame describe a row, from the lowest frequency on",
    "shared-moments.bits": "bits of each number in a row's vector; more are more exact, and make uploads longer",
    "shared-moments.by_class": "second moments of each class, not of all rows together; makes uploads longer",
    "shared-moments.share": "share of the budget for counts and means of the classes",
    "sgde.steps": "training steps of a generator",
    "sgde.epsilon": "the most that a generator in the pool may cost",
    "sgde.rate": "probability that a row is used in a step",
    "sgde.rows": "rows that are drawn when a run is saved",
    "sgde.poison": "a simulation: silos that lie",
    "sgde.learning_rate": "learning rate of a generator",
    "sgde.channels": "channels of the layers for images",
    "sgde.features": "kind moments: the most coefficients of the frame to measure, from the lowest frequency on",
    "quality_epsilon": "kinds gram, moments: the part of the offer's ε for a figure of quality; without it, no figure",
    "gen-fl.steps": "local steps of a client in a round",
    "gen-fl.epsilon": "price of everything that a client does in the run",
    "gen-fl.rows": "a public, nominal number of rows of a client",
    "gen-fl.share": "share of made-up rows in a batch",
    "gen-fl.gan_steps": "steps of a client's generator",
    "gen-fl.gan_rate": "learning rate of a client's generator",
    "gen-fl.gan_hidden": "width of a client's generator",
    "gen-fl.dp_generator": "whether the generator is private, too; otherwise it stays at the client",
    "dplt.split": "weights by which ε goes to latent attributes, correlations and tree parameters",
    "lopub.batch": "people who are asked at a time",
    "one-report.epsilon_total": "price of a person's one report, and so of the run",
    "one-report.share": "share of the people who are asked about single columns; without it by ε; 1: no pairs at all",
    "one-report.liars": "share of the reports that may be made up: single ones then weigh less",
    "one-report.batch": "people who are asked at a time",
    "class-means.epsilon_total": "price of a person's one report, and so of the run",
    "class-means.share": "share of the people who report on the mean of all; the others on their direction from it",
    "class-means.features": "how many coefficients of the frame describe a row, from the lowest frequency on",
    "class-means.batch": "people who are asked at a time",
    "lopub.method": "lopub or locop",
    "lopub.hashes": "hash functions of a column's Bloom filter",
    "lopub.threshold": "dependence from which two columns are joined",
    "vd-gan-pate.top": "coordinates that a teacher votes on",
    "vd-gan-pate.clip": "bound of a teacher's vote",
    "vd-gan-pate.threshold": "share of teachers who must agree",
    "vd-gan-pate.teachers": "teachers, on disjoint people",
    "vd-gan-pate.batch": "people of a teacher in a step",
    "sampling": "private: each party draws its own batches; shared: all use the same, against outsiders alone",
    "upload": "share of gradients that is sent",
    "coupling": "gram: joint tables are released first, and also steer the generator",
    "coupling_weight": "how much longer the joint tables' gradient is than the critics'",
    "coupling_share": "share of ε for the joint tables of coupling = \"gram\"",
    "fed-wae.channels": "channels of the layers for images",
    "wake-sleep.dream_rate": "learning rate of the encoder",
}  # fmt: skip
WORDS |= dict.fromkeys(
    (f"{name}.rate" for name in ("sign-ds", "fed-wae", "wake-sleep", "fed-stdg")),
    "SubMDS: share of coordinates that are looked at",
)
VALUES = {
    "fine": "0, or between 0.02 and 0.9",
    "triples": "a list of lists of three columns",
    "target": "a column's name",
    "upload": "above 0, 1 at most",
    "aggregator": "a party's name",
    "poison": "none, or a table of keys",
    "sgde.poison": "none, flip, random",
    "warm_up": "0 or above",
    "device": "auto, cpu, cuda",
    "common": "a list of whole numbers of at least 1",
    "critic_hidden": "a list of whole numbers of at least 1",
    "sgde.channels": "a list of whole numbers of at least 1",
}  # where a config's own refusal says less


@dataclasses.dataclass(frozen=True)
class Setting:
    """One key of `[settings]`."""

    name: str
    default: str
    values: str
    meaning: str


def settings_of(protocol: str) -> list[Setting]:
    """Every setting of a protocol. ConfigError names the nearest protocol where there is none of that name."""
    config: Any = protocol_named(protocol).config
    return [
        Setting(
            field.name,
            _plain(field.default),
            _values(protocol, config, field),
            _meaning(protocol, config, field.name),
        )
        for field in dataclasses.fields(config)
    ]


def reference() -> str:
    """docs/settings.md: what several protocols share in one table, then each protocol's own settings."""
    every = {protocol: settings_of(protocol) for protocol in PROTOCOLS}
    shared = _shared(every.values())
    lines = [f"- `{name}`{_range(values)}: {meaning}" for name, (values, meaning) in sorted(shared.items())]
    parts = [_HEAD, *lines, ""]
    for protocol, record in PROTOCOLS.items():
        own = [one for one in every[protocol] if shared.get(one.name) != (one.values, one.meaning)]
        others = ", ".join(f"`{one.name}={one.default}`" for one in every[protocol] if one not in own)
        parts += [f"## {protocol}\n", f"{record.title}\n"]
        parts += [*map(_line, own), ""] if own else []
        parts += [f"Shared: {others}.\n"]
    return "\n".join(parts)


def _shared(every: Iterable[list[Setting]]) -> dict[str, tuple[str, str]]:
    """Values and meaning of each name that means the same in several protocols."""
    count = Counter((one.name, one.values, one.meaning) for settings in every for one in settings)
    return {name: (values, meaning) for (name, values, meaning), n in reversed(count.most_common()) if n > 1}


_HEAD = """\
# Settings

The keys of `[settings]` in a run file, and the keywords of `us.train`. Written by `make reference` from the protocols'
own `Config`; `understudy protocols NAME` prints all settings of one. A range is what the `Config` refuses to leave;
where none stands: a whole number of at least 1. `–` is no value.

## Shared by several protocols
"""


def _line(setting: Setting) -> str:
    return f"- `{setting.name}={setting.default}`{_range(setting.values)}: {setting.meaning}"


def _range(values: str) -> str:
    return "" if values == "a whole number of at least 1" else f" ({values})"


def _plain(value: object) -> str:
    """A default as a run file would have it."""
    if value is None or value is dataclasses.MISSING:
        return "–"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return f"[{', '.join(map(_plain, value))}]"
    return (
        f'"{value}"' if isinstance(value, str) else f"{value:g}" if isinstance(value, float) else str(value)
    )


def _meaning(protocol: str, config: type, name: str) -> str:
    return WORDS.get(f"{protocol}.{name}") or WORDS.get(name) or _told(config, name)


def _told(config: type, name: str) -> str:
    """What a docstring of the config, or of what it inherits, says of the setting: the first sentence that names it."""
    for cls in config.__mro__:
        text = " ".join((inspect.getdoc(cls) or "").split()) if cls.__doc__ else ""
        for sentence in re.split(r"(?<=[.;])\s+(?=[A-Z`])", text):
            if f"`{name}`" in sentence:
                return re.sub(rf"^`{name}`:\s*", "", sentence).rstrip(".;")
    return ""


def _values(protocol: str, config: type, field: "dataclasses.Field[Any]") -> str:
    """What a config says that a value must be when it refuses one; its type where it refuses none by name."""
    if stated := VALUES.get(f"{protocol}.{field.name}") or VALUES.get(field.name):
        return stated
    for said in _refusals(config, field.name):
        if found := re.match(rf"{re.escape(field.name)} must (?:be |lie )?(.+?),? not ", said):
            return found[1].removeprefix("one of ")
    kind = str(getattr(field.type, "__name__", field.type)).removesuffix(" | None")
    return {"bool": "true or false", "str": "a text", "tuple": "a list"}.get(kind, kind)


def _refusals(config: type, name: str) -> Iterator[str]:
    base = {
        key: value for key, value in _REQUIRED.items() if key in {f.name for f in dataclasses.fields(config)}
    }
    for value in _ABSURD:
        for given in (base, {}):
            try:
                config(**{**given, name: value})
            except UnderstudyError as error:
                yield str(error)
            except (TypeError, ValueError, OverflowError, AttributeError):
                continue
