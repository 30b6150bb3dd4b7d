"""Seeds that no generator takes: a server's own numbers, refused before anybody is
charged.
"""

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parent.parent / "contract"))
from protocol_cases import CASES, Case

from refusals import raises
from understudy.ground.errors import ConfigError, Effect, MessageError
from understudy.protocols.core import Ask
from understudy.protocols.papers.sgde.offering import Recipe
from understudy.protocols.papers.verti_gan import protocol as verti_gan
from understudy.runtime.local import LocalParties, addressed

NONE = (-1, 1 << 63, 1 << 64, 10**30, True, 0.5, float("nan"))


class Curious(LocalParties):
    """Asks every party for each round with these seeds first."""

    refused = 0

    def ask(
        self, message: Ask | Mapping[str, Ask], *, min_holders: int | None = None
    ) -> dict[str, Any]:
        for name, ask in addressed(message, self.names).items():
            if isinstance(ask, verti_gan.VertiGanRound):
                ledger = self.parties[name].ledger
                before = len(ledger.entries())
                for seed in NONE:
                    with raises(MessageError, effect=Effect.NOTHING_CHARGED):
                        super().ask({name: replace(ask, seed=seed)})
                    self.refused += 1
                assert len(ledger.entries()) == before
        return super().ask(message, min_holders=min_holders)


def test_a_round_with_a_seed_that_no_generator_takes_costs_nothing() -> None:
    case = next(case for case in CASES if case.name == "VertiGAN, two parties")
    federation = case.federation()
    parties = Curious(federation.parties(case.protocol, config=case.config(), run="r"))
    case.record.train(case.config(), parties, federation.schemas)
    assert parties.refused == len(NONE) * 2 * case.config().rounds


@pytest.mark.parametrize(
    "case", {case.protocol: case for case in CASES}.values(), ids=lambda c: c.protocol
)
def test_no_protocol_takes_such_a_seed_in_its_settings(case: Case) -> None:
    for seed in NONE:
        with pytest.raises(ConfigError, match="seed"):
            case.record.config(**case.settings | {"seed": seed})


def test_no_recipe_of_a_pool_has_one() -> None:
    for seed in NONE:
        with pytest.raises(ConfigError, match="seed"):
            Recipe(seed=seed)  # type: ignore[arg-type]
