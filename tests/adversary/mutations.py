"""What a server may send: the asks of a run, with something of them at an end of what
its type can hold.
"""

import math
import random
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

import torch
from bounds import SIZES
from torch import Tensor

from understudy.privacy.gradients.limits import RANGES
from understudy.protocols.core.alignment import Introduce, MaskOwn
from understudy.protocols.core.base import Ask, Keep, Return, Settle

FLOATS = (
    math.nan,
    math.inf,
    -math.inf,
    0.0,
    -1.0,
    5e-324,
    1e-300,
    1e-30,
    1e-6,
    1.0,
    1e6,
    1e30,
    1.7e308,
)
WHOLES = (0, -1, 1, 2, 3, 2**31, 2**63 - 1, 10**30)
SMALL: dict[str, tuple[Any, ...]] = {  # settings that also decide how long a run takes
    "rounds": (1, 2, 3),
    "critic_steps": (1, 2, 3),
    "steps": (1, 2, 4),
    "gan_steps": (1, 2),
    "batch": (1, 2, 16, 1000),
    "rows": (1, 3, 8),
    "critic_hidden": ((1,), (2, 3), (1, 1, 1, 1)),
    "common": ((1,), (3, 2)),
    "latent": (1, 3),
    "hidden": (1, 5),
    "gan_hidden": (1, 4),
    "teachers": (1, 2, 6),
    "top": (1, 3),
    "warm_up": (0, 1, 2),
    "sampling": ("private", "shared"),
    "upload": (1e-6, 0.3, 1.0),
    "threshold": (0.0, 0.5, 1.0),
    "share": (0.0, 0.5, 1.0),
    "max_reports": (1, 2, 3),
    "clients_per_round": (1, 7, 20),
    "epochs": (1, 2),
    "optimizer": ("sgd", "adam"),
    "hashes": (1, 3),
    "bound": ("paper", "exact"),
    "group": (1, 2, 3),
    "plus": (False, True),
    "model": ("logistic", "mlp"),
    "leave_out": ("nothing", "suspects"),
    "seed": (0, 7),
    "chunk": (1, 3, 25),
    "max_colluding": (1, 2),
    "reporter": (
        "ps",
        "em-mds",
        "naive",
        "sub-mds",
        "proportional",
        "duchi",
        "piecewise",
        "grid",
        "pm-sub",
        "fedsel",
    ),
    "features": (1, 3, 12),
    "bits": (None, 0, 1, 2),
    "shares": ((0.3, 0.4, 0.3), (0.05, 0.9, 0.05), (0.5, 0.5, 0.0)),
    "chosen": (None, 1),
    "kind": ("beta-vae", "marginals"),
    "epsilon_total": (1e-3, 0.5, 3.0),
    "device": ("cpu",),
}
WITHIN = {"learning_rate": RANGES["learning_rate"], "global_rate": (1e-9, 1e9)} | RANGES


def _more(value: Any) -> Any:
    """Of numbers, a little more: as noise that is no less than is due."""
    match value:
        case float():
            return 1.0001 * value
        case list():
            return [_more(one) for one in value]
    return value


class Enemy:
    """Draws settings, and asks that come between those of a run."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.round = 0

    def settings(self, config: type, honest: Mapping[str, Any]) -> dict[str, Any]:
        """Some of the settings at the ends of their ranges."""
        settings = dict(honest)
        rng = self.rng
        known = [
            item.name
            for item in fields(config)
            if item.name in SMALL or item.name in WITHIN
        ]
        for name in rng.sample(known, min(len(known), rng.choice((0, 1, 2, 4)))):
            if name in SMALL:
                settings[name] = rng.choice(SMALL[name])
            else:
                low, high = WITHIN[name]
                ends = (
                    low,
                    high,
                    math.exp(rng.uniform(math.log(low or 1e-9), math.log(high))),
                )
                settings[name] = rng.choice(ends)
        return settings

    def between(self, ask: Ask, earlier: list[Ask]) -> list[Ask]:
        """What is asked of a party before this ask."""
        rng = self.rng
        asks = []
        # few runs survive much before their first round
        often = 0.6 if ask.kind().endswith("round") else 0.1
        while rng.random() < often and len(asks) < 4:
            kind = rng.choice(
                (
                    "changed",
                    "changed",
                    "changed",
                    "again",
                    "keep",
                    "return",
                    "settle",
                    "align",
                )
            )
            if kind == "changed":
                asks.append(self.changed(ask))
            elif kind == "again" and earlier:
                asks.append(rng.choice(earlier))
            elif kind == "keep":
                self.round += 1
                asks.append(Keep(round=rng.choice((self.round, 1))))
            elif kind == "return":
                asks.append(Return(round=rng.choice((max(1, self.round), 1, 99, -1))))
            elif kind == "settle":
                asks.append(Settle())
            elif kind == "align":
                asks.append(
                    rng.choice((Introduce(), MaskOwn(salt=b"", people={"made up": 3})))
                )
        return asks

    def another(self, asks: Mapping[str, Ask]) -> dict[str, Ask]:
        """In place of these: a little more of every number, one field changed alike for
        all who have it, or for one of them, or all as they were.
        """
        told = dict(asks)
        rng = self.rng
        if rng.random() < 0.4:
            for name, ask in told.items():
                told[name] = replace(
                    ask, **{key: _more(own) for key, own in vars(ask).items()}
                )
            return told
        one = rng.choice(sorted(told))
        other = self.changed(told[one])
        if rng.random() < 0.2:
            return told
        if rng.random() < 0.5:
            return told | {one: other}
        names = [item.name for item in fields(other)]
        new = {
            name: getattr(other, name)
            for name in names
            if getattr(other, name) is not getattr(told[one], name)
        }
        alike = {name: ask for name, ask in told.items() if type(ask) is type(other)}
        return told | {name: replace(ask, **new) for name, ask in alike.items()}

    def changed(self, ask: Ask) -> Ask:
        """One field of it at an end of what its type can hold."""
        names = [item.name for item in fields(ask)]
        if not names:
            return ask
        name = self.rng.choice(names)
        return replace(ask, **{name: self.value(getattr(ask, name))})

    def value(self, value: Any) -> Any:
        """Another value of the same kind."""
        rng = self.rng
        match value:
            case Tensor():
                return self.tensor(value)
            case bool():
                return not value
            case int():
                return rng.choice(WHOLES)
            case float():
                return rng.choice(FLOATS)
            case bytes():
                return rng.choice(
                    (b"", bytes(len(value)), rng.randbytes(len(value)), bytes(8))
                )
            case str():
                return rng.choice(("", "nobody", "../" * 9))
            case dict() if value:
                key = rng.choice(sorted(value, key=str))
                if rng.random() < 0.1:
                    return {name: one for name, one in value.items() if name != key}
                return value | {key: self.value(value[key])}
            case list() | tuple() if value:
                place = rng.randrange(len(value))
                return type(value)(
                    self.value(one) if n == place else one
                    for n, one in enumerate(value)
                )
            case None:
                return rng.choice((1, "a", 0.5))
        return value

    def tensor(self, value: Tensor) -> Tensor:
        rng = self.rng
        if rng.random() < 0.15:
            return rng.choice(
                (
                    value[:0],
                    value.double(),
                    value.flatten()[1:],
                    value[None],
                    value.bool(),
                )
            )
        if not value.is_floating_point():
            some = value.clone()
            if some.numel():
                end = (
                    rng.choice((0, 1, -1, int(torch.iinfo(value.dtype).max)))
                    if value.dtype != torch.bool
                    else 1
                )
                some.view(-1)[rng.randrange(some.numel())] = end
            return rng.choice((some, value.flip(0)))
        size = rng.choice((*[one for one in SIZES if one <= 1e9], *SIZES))
        drawn = torch.empty_like(value).uniform_(
            -1, 1, generator=torch.Generator().manual_seed(rng.randrange(2**31))
        )
        large = drawn * size if rng.random() < 0.5 else value.sign() * size
        if rng.random() < 0.1 and large.numel():
            large.view(-1)[rng.randrange(large.numel())] = rng.choice(
                (math.nan, math.inf, -math.inf)
            )
        return large
