"""An audit of gram comes close to what it claims, and finds a holder that adds too
little noise.
"""

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from torch import Tensor

from understudy.data.schema import Boolean, Integer, Real, Schema
from understudy.evaluate.audit.audit_file import audit_run_file
from understudy.evaluate.audit.auditing import AuditResult, audit_protocol
from understudy.evaluate.audit.joint_canary import JointAudit
from understudy.ground.errors import ConfigError
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.noise.rng import Rng
from understudy.privacy.secure.counts import noise_on
from understudy.protocols.gram import protocol as gram
from understudy.protocols.gram.protocol import Gram
from understudy.protocols.joint import pricing

XY = Schema(columns=(Boolean(name="x"), Boolean(name="y")))
Z = Schema(columns=(Boolean(name="z"),))
AGE = Integer(name="age", low=0, high=40)
NUMBERS = Schema(columns=(AGE, Boolean(name="x")))
PRICES = Schema(
    columns=(
        Real(name="price", low=0.0, high=4.0, decimals=1, ends=True),
        Boolean(name="x"),
    )
)
BUDGET, STRICT, LOOSE = (Budget(epsilon, 1e-3) for epsilon in (8.0, 2.5, 32.0))

pytestmark = pytest.mark.usefixtures("few_trials")


def audited(
    schemas: dict[str, Schema],
    trials: int = 14,
    budget: Budget = BUDGET,
    stages: tuple[str, ...] = (),
    **settings: Any,
) -> AuditResult:
    case = JointAudit(
        study=Gram,
        stages=stages,
        config=gram.Config(**settings),
        schemas=schemas,
        budgets=dict.fromkeys(schemas, budget),
        target="a",
        people=4,
    ).case()
    return audit_protocol(case, trials=trials, seconds=3600, seed=3)


@pytest.mark.long
def test_a_holders_own_release_is_nearly_as_telling_as_it_is_claimed_to_be() -> None:
    result = audited({"a": XY}, trials=30)
    assert result.passed
    assert result.observed > 0.5 * result.claimed


@pytest.mark.long
def test_in_a_vertical_partition_the_claim_is_kept_and_something_is_seen() -> None:
    result = audited({"a": XY, "b": Z}, budget=LOOSE)
    assert result.passed
    # so few trials cannot show more than 4.2, whatever the claim
    assert result.observed > 2.5


@pytest.mark.long
@pytest.mark.parametrize("searched", [0, 1])
def test_a_target_that_is_measured_twice_is_within_the_claim_too_also_after_threes(
    searched: int,
) -> None:
    schema = Schema(columns=(*XY.columns, *Z.columns)) if searched else XY
    result = audited(
        {"a": schema},
        budget=LOOSE,
        target="x",
        first_pass_share=0.3,
        searched_triples=searched,
    )
    assert result.passed
    assert result.observed > 2.5


@pytest.mark.long
@pytest.mark.parametrize(
    "schemas", [{"a": PRICES}, {"a": NUMBERS, "b": Z}], ids=["one holder", "columns"]
)
def test_where_levels_are_bought_all_releases_together_are_within_the_claim(
    schemas: dict[str, Schema],
) -> None:
    result = audited(schemas, budget=LOOSE, fine=0.5)
    assert result.passed
    assert result.observed > 2.5


@pytest.mark.long
def test_fine_tables_with_a_tenth_of_their_noise_are_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def quiet(cells: Tensor, scale: Fraction, rng: Rng) -> Tensor:
        # trees have many nodes
        return noise_on(cells, scale / 10 if len(cells) > 10 else scale, rng)

    monkeypatch.setattr(pricing, "noise_on", quiet)
    assert not audited(
        {"a": Schema(columns=(AGE,))}, budget=STRICT, fine=0.9, stages=("fine",)
    ).passed


@pytest.mark.long
@pytest.mark.parametrize(
    "schemas", [{"a": XY}, {"a": XY, "b": Z}], ids=["one holder", "columns"]
)
def test_holders_that_add_a_tenth_of_their_noise_are_found_out(
    schemas: dict[str, Schema], less_noise: Callable[[int], None]
) -> None:
    less_noise(10)
    assert not audited(schemas, budget=STRICT).passed


@pytest.mark.long
def test_a_run_file_with_gram_is_audited_by_its_settings(tmp_path: Path) -> None:
    for name, schema in (("a", XY), ("b", Z)):
        schema.save(tmp_path / f"{name}.toml")
    section = {
        name: SimpleNamespace(schema=f"{name}.toml", epsilon=8.0, budget=lambda: BUDGET)
        for name in ("a", "b")
    }
    file = SimpleNamespace(
        parties=section, out="out", path=lambda text: tmp_path / text
    )
    result = audit_run_file(file, gram.PROTOCOL, gram.Config(), trials=10, people=4)
    assert result.passed
    assert any("gram, vertical partition" in note for note in result.notes)


def test_what_cannot_be_audited_is_refused() -> None:
    with pytest.raises(ConfigError, match="no guarantee"):
        audited({"a": XY}, private=False)
    with pytest.raises(ConfigError, match="grid"):
        audited({"a": XY, "b": Z, "c": Z})


@pytest.mark.long
def test_over_a_union_the_claim_is_kept_and_something_is_seen() -> None:
    people = {
        "a": Schema(columns=XY.columns, person="id"),
        "b": Schema(columns=Z.columns, person="id"),
    }
    result = audited(people, budget=LOOSE, alignment="union")
    assert result.passed
    # so few trials cannot show more than 4.2, whatever the claim
    assert result.observed > 2.5
