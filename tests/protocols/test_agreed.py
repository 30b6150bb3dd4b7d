"""Settings that a holder agreed to bind its party: a server that asks by others is
refused before it costs anything.
"""

from dataclasses import replace
from typing import Any

import pytest

from understudy.data.samples import toy
from understudy.ground.errors import MessageError
from understudy.privacy.accounts.budget import Budget
from understudy.protocols.gram import protocol as gram
from understudy.protocols.papers.sgde import protocol as sgde
from understudy.runs.federation import Federation
from understudy.runtime.local import LocalParties

BUDGET = Budget(epsilon=2.0, delta=1e-5)
TRADED: dict[str, Any] = {"target": "smoker", "steps": 2, "latent": 2, "device": "cpu"}
MIXTURE: dict[str, Any] = {
    "components": 8,
    "steps": 3,
    "device": "cpu",
    "max_colluding": 2,
}


def holders(*, cut: str) -> Federation:
    frame, schema = toy(rows=60, seed=3)
    names = [f"holder {n}" for n in range(4)]
    if cut == "rows":
        tables = {name: frame.iloc[n::4] for n, name in enumerate(names)}
        schemas = dict.fromkeys(names, schema)
    else:
        columns = {name: schema.names[n::4] for n, name in enumerate(names)}
        tables = {name: frame[["id", *columns[name]]] for name in names}
        schemas = {name: schema.select(columns[name]) for name in names}
    return Federation.rehearsal(
        tables, schemas, budget=BUDGET, seed=1, same_people=cut != "rows"
    )


def asked(module: Any, protocol: str, agreed: Any, told: Any, cut: str) -> Federation:
    """A run whose server goes by other settings than the holders agreed to."""
    federation = holders(cut=cut)
    module.train(
        told,
        LocalParties(federation.parties(protocol, config=agreed, run="r")),
        federation.schemas,
    )
    return federation


def refused(module: Any, protocol: str, agreed: Any, told: Any, cut: str) -> None:
    federation = holders(cut=cut)
    parties = LocalParties(federation.parties(protocol, config=agreed, run="r"))
    with pytest.raises(MessageError, match="was agreed to"):
        module.train(told, parties, federation.schemas)
    for holder in federation.holders.values():
        assert holder.ledger.spend() == {}


@pytest.mark.parametrize(
    "change",
    [
        {"steps": 7},
        {"rate": 0.5},
        {"clip_norm": 2.0},
        {"learning_rate": 0.1},
        {"latent": 3},
        {"seed": 4},
        {"epsilon": 1.9},
        {"delta": 1e-6},
        {"largest": 1 << 20},
        {"target": "grade"},
        {"poison": "flip", "poison_share": 1.0},
    ],
    ids=str,
)
def test_a_pool_that_asks_a_silo_for_other_settings_is_refused_and_nothing_is_charged(
    change: Any,
) -> None:
    config = sgde.Config(**TRADED)
    refused(
        sgde,
        "sgde",
        config,
        replace(config, **change),
        "rows",
    )


@pytest.mark.parametrize(
    "change",
    [
        {"max_colluding": 1},
        {"remeasured_pairs": 2},
        {"target": "smoker"},
        {"private": False},
    ],
    ids=str,
)
@pytest.mark.parametrize("cut", ["rows", "columns"])
def test_a_server_that_measures_otherwise_than_agreed_is_refused_and_nothing_is_charged(
    change: Any, cut: str
) -> None:
    config = gram.Config(**MIXTURE)
    refused(gram, "gram", config, replace(config, **change), cut)


def test_settings_as_agreed_are_answered() -> None:
    """Also where the server's own choices, which no holder has to agree to, are
    others.
    """
    traded = sgde.Config(**TRADED)
    measured = gram.Config(**MIXTURE)
    for federation in (
        asked(
            sgde, "sgde", traded, replace(traded, rows=17, leave_out="nothing"), "rows"
        ),
        asked(gram, "gram", measured, replace(measured, steps=5, components=4), "rows"),
    ):
        assert all(
            0 < holder.ledger.spent() <= 2.0 for holder in federation.holders.values()
        )
