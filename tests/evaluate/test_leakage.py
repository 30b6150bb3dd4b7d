import numpy as np
import pandas as pd
import pytest

from understudy.data.schema import Boolean, Categorical, Integer, Ordinal, Schema
from understudy.data.table import read_table
from understudy.evaluate.comparison import attack_tables
from understudy.ground.errors import ConfigError

SCHEMA = Schema(
    columns=(
        Categorical(name="plan", categories=("free", "paid", "old", "new")),
        Ordinal(name="grade", categories=(1, 2, 3, 4, 5), nullable=True),
        Integer(name="age", low=0, high=99),
        Integer(name="weight", low=0, high=63),
        Boolean(name="ill"),
    )
)

pytestmark = pytest.mark.usefixtures("few_draws")
OWNERS = {
    "plan": "bank",
    "grade": "bank",
    "age": "bank",
    "weight": "clinic",
    "ill": "clinic",
}


def people(rows, seed):
    rng = np.random.default_rng(seed)
    age = rng.integers(0, 100, rows)
    return pd.DataFrame(
        {
            "plan": rng.choice(["free", "paid", "old", "new"], rows),
            "grade": pd.array(rng.integers(1, 6, rows), dtype="Int64"),
            "age": age,
            "weight": np.clip(age // 2 + rng.integers(0, 15, rows), 0, 63),
            "ill": rng.random(rows) < age / 150,
        }
    )


TRAIN = people(500, 0)
HOLDOUT = people(500, 1)


def leaks(found):
    return {attack.name for attack in found.attacks if attack.leaks}


def test_every_attack_is_there_with_its_control():
    found = attack_tables(
        TRAIN,
        HOLDOUT,
        people(500, 2),
        SCHEMA,
        owners=OWNERS,
        secrets=SCHEMA.names,
        targets=300,
    )
    assert [attack.name for attack in found.attacks] == [
        *(
            "mia",
            "mia_nearest",
            "mia_0pct_outliers",
            "mia_50pct_outliers",
            "mia_100pct_outliers",
        ),
        *(
            "closer_to_train",
            "singling_out_univariate",
            "singling_out_3",
            "linkability",
        ),
        *(f"inference_{name}" for name in SCHEMA.names),
    ]
    assert not leaks(found)
    assert [figure.name for figure in found.closeness] == [
        "dcr",
        "dcr_p5",
        "nndr",
        "nndr_p5",
    ]
    for line in "\n".join(map(str, found.attacks)).splitlines():
        assert "control" in line or "cannot be computed, because" in line


def test_a_copy_leaks_by_every_kind_of_attack():
    found = attack_tables(
        TRAIN, HOLDOUT, TRAIN, SCHEMA, owners=OWNERS, secrets=SCHEMA.names, targets=300
    )
    assert {
        "mia",
        "mia_nearest",
        "closer_to_train",
        "singling_out_3",
        "linkability",
    } <= leaks(found)
    assert any(name.startswith("inference_") for name in leaks(found))


def test_tables_and_frames_are_alike_and_named_secrets_alone_are_inferred():
    tables = [read_table(frame, SCHEMA) for frame in (TRAIN, HOLDOUT, people(200, 3))]
    found = attack_tables(*tables, SCHEMA, secrets=["ill"], targets=50)
    frames = attack_tables(
        *(table.frame for table in tables), SCHEMA, secrets=["ill"], targets=50
    )
    assert found.attacks == frames.attacks
    assert [attack.name for attack in found.attacks][-1] == "inference_ill"
    assert (
        "fewer than two parties"
        in {a.name: a for a in found.attacks}["linkability"].reason
    )


def test_three_parties_are_linked_each_to_the_others():
    owners = OWNERS | {"ill": "insurer"}
    found = attack_tables(
        TRAIN, HOLDOUT, people(200, 4), SCHEMA, owners=owners, secrets=[], targets=50
    )
    links = [
        attack for attack in found.attacks if attack.name.startswith("linkability_")
    ]
    assert all(
        m.adjusted is not None for attack in found.attacks for m in attack.measures
    )
    assert [attack.name for attack in links] == [
        "linkability_bank",
        "linkability_clinic",
        "linkability_insurer",
    ]
    assert links[2].note.startswith("1 columns to 4")


def test_empty_tables_give_reasons_and_no_traceback():
    for tables in (
        (TRAIN[:0], HOLDOUT, TRAIN),
        (TRAIN, HOLDOUT[:0], TRAIN),
        (TRAIN, HOLDOUT, TRAIN[:0]),
    ):
        found = attack_tables(*tables, SCHEMA, owners=OWNERS, secrets=SCHEMA.names)
        assert all("rows" in attack.reason for attack in found.attacks)


def test_names_that_are_unknown_are_refused_with_a_hint():
    with pytest.raises(ConfigError, match='Did you mean "weight"'):
        attack_tables(TRAIN, HOLDOUT, TRAIN, SCHEMA, secrets=["wieght"])
    with pytest.raises(ConfigError, match='no column "height"'):
        attack_tables(TRAIN, HOLDOUT, TRAIN, SCHEMA, owners={"height": "bank"})
