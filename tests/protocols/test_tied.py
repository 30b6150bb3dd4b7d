"""Tied: what is released of several holders' rows is what was promised, and what is
drawn of them is tied.
"""

import json
import math
from dataclasses import asdict, replace
from itertools import combinations_with_replacement
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from odd_servers import Crooked, of_kind

from forker import Forker
from understudy.api.train import run_file, train
from understudy.data.encoding.frame import Frame, on_diagonal
from understudy.data.images import Images, ImageSchema
from understudy.data.schema import Categorical, Ordinal, Schema
from understudy.evaluate.audit import auditing
from understudy.evaluate.audit.audit_file import audit_run_file
from understudy.generators.generator import Generator
from understudy.ground.errors import (
    ConfigError,
    MessageError,
    PartyAway,
    PrivacyError,
    SchemaError,
)
from understudy.models.moments.released import CELLS
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.secure.moments import bounded, squares
from understudy.protocols.core.alignment import align_people
from understudy.protocols.core.base import Ask, Keep
from understudy.protocols.joint.measurements import Measurements
from understudy.protocols.joint.messages import Agree, Begin, Propose, Release
from understudy.protocols.joint.server import measure
from understudy.protocols.joint.stage import block_name
from understudy.protocols.tied import protocol as tied
from understudy.protocols.tied import reading
from understudy.protocols.tied.protocol import TiedStudy
from understudy.protocols.tied.reading import classwise_of
from understudy.protocols.tied.stages import ArrayPeople
from understudy.runs.federation import Federation
from understudy.runs.runfile import RunFile
from understudy.runtime.local import LocalParties

IMAGE = ImageSchema(height=4, width=6, person="id")
TABLE = Schema(
    columns=(
        Ordinal(name="side", categories=(0, 1, 2)),
        Categorical(name="site", categories=("a", "b")),
    ),
    person="id",
)
SMALL: dict[str, Any] = {
    "features": 10,
    "directions": 4,
    "components": 16,
    "steps": 15,
    "chunk": 64,
}


def people(count: int, seed: int = 0) -> tuple[dict[str, Any], dict[str, Any]]:
    """An upper and a lower half whose brightness goes together, and a table: side says
    which third is bright.
    """
    rng = np.random.default_rng(seed)
    side = rng.integers(0, 3, count)
    site = rng.integers(0, 2, count)
    glow = rng.normal(0, 25, count)
    halves = []
    for _ in range(2):
        pixels = 90 + glow[:, None, None] + rng.normal(0, 12, (count, 4, 6))
        for third in range(3):
            pixels[side == third, :, 2 * third : 2 * third + 2] += 70
        halves.append(np.clip(pixels, 0, 255).astype(np.uint8))
    ids = np.arange(count)
    frame = pd.DataFrame(
        {"id": ids, "side": side, "site": np.array(["a", "b"], dtype=object)[site]}
    )
    order = rng.permutation(count)
    held = {
        "upper": Images.from_array(halves[0], IMAGE, ids),
        "registry": frame.iloc[order].reset_index(drop=True),
        "lower": Images.from_array(halves[1][::-1].copy(), IMAGE, ids[::-1].copy()),
    }
    return held, {"registry": TABLE}


def federation(count: int = 40, epsilon: float = 3.0, seed: int = 1) -> Federation:
    held, schemas = people(count)
    return Federation.rehearsal(held, schemas, budget=Budget(epsilon, 1e-5), seed=seed)


def measured(
    fed: Federation, config: tied.Config, parties: Any = None
) -> tuple[TiedStudy, Measurements]:
    """What a server finds."""
    study = TiedStudy(config, fed.schemas)
    return study, measure(
        study,
        parties or LocalParties(fed.parties("tied", run="r", config=config)),
        chunk=config.chunk,
    )


def group(study: TiedStudy, *names: str) -> str:
    """A block by the names of its holders."""
    one, *others = map(study.names.index, names)
    other = others[0] if others else one
    return block_name((min(one, other), max(one, other)))


def begin_of(fed: Federation, config: tied.Config) -> Begin:
    schemas = {name: schema.to_dict() for name, schema in fed.schemas.items()}
    return Begin(family="tied", config=asdict(config), schemas=schemas)


def test_without_noise_what_is_released_is_what_all_rows_together_give() -> None:
    """An exact oracle: the aligned people's vectors side by side, multiplied in the
    open.
    """
    fed = federation(epsilon=math.inf)
    config = tied.Config(**SMALL, target="side", private=False)
    study, done = measured(fed, config)
    scale = study.scale("joint", 0.0)
    told = done.record.terms["joint"]
    frame = study.frames[study.names.index("upper")]
    held: dict[str, Any] = {name: holder.table for name, holder in fed.holders.items()}
    order = {name: held[name].people.tolist() for name in held}
    common = order["registry"]
    vectors = {}
    for name in ("upper", "lower"):
        q = frame.coefficients(held[name].values)[
            [order[name].index(one) for one in common]
        ]
        vectors[name] = bounded(
            q - told["centre"][name].numpy(), float(told["radius"][name]), scale
        )
    table = held["registry"].frame
    levels = [table["side"] == one for one in (0, 1, 2)] + [
        table["site"] == one for one in ("a", "b")
    ]
    # ⌊181/√2⌋
    vectors["registry"] = np.stack([level.to_numpy() * 127.0 for level in levels], 1)
    for a, b in combinations_with_replacement(study.names, 2):
        outer = torch.from_numpy(vectors[a].T @ vectors[b]).long()
        at = torch.triu_indices(*outer.shape)
        sums = done.record.sums["joint"][group(study, a, b)]
        assert torch.equal(sums, outer[at[0], at[1]] if a == b else outer), (a, b)


def test_by_class_second_moments_are_those_of_each_class() -> None:
    fed = federation(epsilon=math.inf)
    config = tied.Config(**SMALL, target="side", private=False)
    study, done = measured(fed, config)
    found = {key: one["lower"] for key, one in done.record.terms["classes"].items()}
    held: Any = fed.holders["lower"].table
    frame = study.frames[study.names.index("lower")]
    about = frame.coefficients(held.values) - found["centre"].numpy()
    basis = np.zeros((frame.features, found["basis"].shape[1]))
    basis[: len(found["basis"])] = found["basis"].numpy()
    scale = study.scale("classes", 0.0)
    w = bounded(np.rint(about @ basis / 4096), float(found["radius"]), scale)
    side = (
        fed.holders["registry"]
        .table.frame.set_index("id")
        .loc[held.people, "side"]
        .to_numpy()
    )  # type: ignore[union-attr]
    moments = classwise_of(study, done)["lower"].moments
    unit = (int(found["radius"]) / scale) ** 2
    for one in range(3):
        own = w[side == one]
        assert np.allclose(moments[one].numpy(), own.T @ own * unit)


def test_what_is_drawn_is_tied_across_holders(tmp_path: Path) -> None:
    """The table's level says which third of both halves is bright, and a bright upper
    half goes with a bright lower.
    """
    found = train("tied", federation(200, epsilon=40.0), **SMALL, target="side")
    loaded = Generator.load(found.generator.save(tmp_path / "generator"))
    drawn: Any = loaded.parts(600, seed=3)
    assert list(loaded.sample(5, seed=1).columns) == list(
        found.sample(5, seed=1).columns
    )
    for half in ("upper", "lower"):
        thirds = drawn[half].reshape(600, 4, 3, 2).mean((1, 3))
        assert (thirds.argmax(1) == drawn["registry"]["side"].to_numpy()).mean() > 0.9
    upper, lower = (drawn[half].mean((1, 2)) for half in ("upper", "lower"))
    assert np.corrcoef(upper, lower)[0, 1] > 0.6
    assert abs(drawn["upper"].mean() - people(200)[0]["upper"].values.mean() * 255) < 8
    assert abs((drawn["registry"]["site"] == "a").mean() - 0.5) < 0.1


def test_a_network_is_checked_without_the_compiler(
    forker: Forker, tmp_path: Path
) -> None:
    """To load torch's takes seconds."""
    parts = [
        {"sizes": [3, 2]},
        {**Frame.from_schema(IMAGE, 10).describe(), "directions": 4},
    ]
    script = tmp_path / "check.py"
    script.write_text(
        "import json, sys\n"
        "from understudy.models.plan import on_paper\n"
        "on_paper(json.loads(sys.argv[1]))\n"
        "sys.exit('torch._dynamo' in sys.modules)"
    )
    said = json.dumps({"kind": "tied", "parts": parts, "components": 16, "label": 0})
    done = forker.run(said, folder=tmp_path, to=tmp_path / "check", program=script)
    assert done.end() == 0, done.err


def test_tables_need_not_be_there_and_neither_needs_a_label() -> None:
    held, _ = people(200)
    held.pop("registry")
    fed = Federation.rehearsal(
        held, {}, budget=Budget(20.0, 1e-5), seed=1, same_people=True
    )
    drawn: Any = train("tied", fed, **SMALL).generator.parts(300, seed=0)
    assert (
        np.corrcoef(*(drawn[half].mean((1, 2)) for half in ("upper", "lower")))[0, 1]
        > 0.5
    )


def test_noise_is_there_at_the_stated_deviation() -> None:
    """Of two runs on the same rows the released numbers differ by the noise alone."""
    config = tied.Config(**SMALL)
    found = []
    study = TiedStudy(config, federation().schemas)
    told = {
        "centre": {
            name: torch.zeros(10, dtype=torch.int64) for name in ("upper", "lower")
        },
        "radius": {"upper": 900, "lower": 900},
    }
    for seed in (1, 2):
        fed = federation(seed=seed)
        with pytest.MonkeyPatch.context() as patch:  # asked alike in both
            own = TiedStudy.terms
            patch.setattr(
                TiedStudy,
                "terms",
                lambda self, name, had, own=own: (
                    told if name == "joint" else own(self, name, had)
                ),
            )
            found.append(measured(fed, config)[1])
    first, second = (one.record.sums["joint"] for one in found)
    sigmas = study.pricing.sigmas(
        1, found[0].stage("joint").blocks, found[0].noise("joint")
    )
    for a, b in combinations_with_replacement(study.names, 2):
        key = group(study, a, b)
        apart = (first[key] - second[key]).double()
        wanted = sigmas[key] * 2**0.5 * (1 if a == b else 2**0.5)
        if a == b:
            apart = apart / torch.where(
                on_diagonal(study.width(study.names.index(a))), 2**0.5, 1.0
            )
        assert float(apart.square().mean().sqrt()) == pytest.approx(wanted, rel=0.5), (
            a,
            b,
        )


@pytest.mark.parametrize("norms", [0.0, 0.1])
def test_every_party_pays_the_whole_price_and_a_person_pays_it_once(
    norms: float,
) -> None:
    found = train("tied", federation(), **SMALL, target="side", norms=norms)
    assert ("norms" in found.generator.card["noise"]) == bool(norms)
    prices = [
        found.privacy.epsilon(name, "server") for name in ("upper", "registry", "lower")
    ]
    assert len(set(prices)) == 1
    assert 2.9 < prices[0] <= 3.0
    assert found.privacy.epsilon(None, "server") == prices[0]


def test_each_holder_buys_its_own_norm_by_what_it_released_and_its_means_are_pulled_in_to_it():
    """Without noise an exact oracle: the longest of its rows decides, rounded up to a
    cell.
    """
    fed = federation(epsilon=math.inf)
    config = tied.Config(**SMALL, norms=0.1, private=False)
    study, done = measured(fed, config)
    bought = {}
    for name, frame in study.frames.items():
        held: Any = fed.holders[study.names[name]].table
        coefficients = frame.coefficients(held.values)
        longest = np.linalg.norm(coefficients, axis=1).max() / frame.reach
        bought[name] = study.framed(done)[name]
        assert bought[name].norm == math.ceil(longest * CELLS) / CELLS
        mean = study.centres(done)[name].means[0].numpy()
        np.testing.assert_allclose(
            mean, coefficients.mean(0), atol=2 * bought[name].reach / 4096
        )
    assert all(frame.norm < 1 for frame in bought.values())


# A server that departs


def only(name: str, **more: Any) -> Any:
    """A change of one party's asks; a function is called with the ask."""

    def change(own: str, ask: Any) -> Any:
        made = {
            key: value(ask) if callable(value) else value for key, value in more.items()
        }
        return replace(ask, **made) if own == name else ask

    return change


def told(name: str, stage: str, **more: Any) -> Any:
    """Other terms of a stage, of one array, for the holder of this name alone."""

    def change(own: str, ask: Any) -> Any:
        if own != name or ask.stage != stage:
            return ask
        return replace(
            ask,
            terms=ask.terms
            | {
                key: ask.terms.get(key, {}) | {name: value}
                for key, value in more.items()
            },
        )

    return change


FAR = torch.full((10,), 2**40)
NAN = torch.full((10,), torch.nan)


@pytest.mark.parametrize(
    ("kind", "change", "words"),
    [
        (Agree, only("upper", noise=[0.1, 0.1, 0.1]), "its budget needs"),
        (Agree, only("upper", noise=[99.0]), "3 scales of noise"),
        (Agree, only("upper", noise=[99.0, 99.0, 99.0]), "not message 1"),
        (Agree, only("upper", bits=32, chunk=3), "not message 1"),
        (Agree, only("lower", seeds={}), "seed is missing"),
        (
            Agree,
            only("lower", seeds=lambda ask: dict.fromkeys(ask.seeds, bytes(32))),
            "seed is missing",
        ),
        (Release, only("upper", inbox={}), "missing or too many"),
        (Propose, told("upper", "joint", centre=FAR), "whole numbers"),
        (Propose, told("upper", "joint", centre=NAN), "whole numbers"),
        (Propose, told("upper", "joint", centre=None), "whole numbers"),
        (Propose, told("upper", "joint", radius=0), "radius"),
        (Propose, told("upper", "joint", radius=2**60), "radius"),
        (Propose, told("upper", "joint", radius=7), "was told other terms"),
        (
            Propose,
            told("upper", "joint", basis=torch.ones(10, 4, dtype=torch.int64)),
            "terms of centre, radius",
        ),
        (
            Propose,
            told("lower", "classes", basis=torch.ones(10, 9, dtype=torch.int64)),
            "directions",
        ),
        (Propose, only("registry", terms={}), "terms of centre, radius"),
        (Release, only("lower", corrections={}), "a correction is missing"),
    ],
)
def test_a_server_that_departs_gets_nothing_of_that_release(
    kind: Any, change: Any, words: str
) -> None:
    fed = federation()
    config = tied.Config(**SMALL, target="side")
    parties = Crooked(
        fed.parties("tied", run="r", config=config), of_kind(kind, change)
    )
    spent: dict[str, int] = {}
    with pytest.raises((MessageError, PrivacyError, ConfigError), match=words):
        tied.train(config, parties, fed.schemas)
    for name, holder in fed.holders.items():
        spent[name] = sum(holder.ledger.spend(run="r").values())
    due = {Agree: 0, Propose: 1, Release: 0}[kind] + (
        "directions" in words or "correction" in words
    )
    victim = "lower" if "correction" in words else "upper"
    assert spent[victim] <= due, "what was refused was not charged"


def test_the_state_is_not_saved_on_the_servers_word_while_a_release_is_due() -> None:
    fed = federation()
    config = tied.Config(**SMALL)
    parties = Crooked(
        fed.parties("tied", run="r", config=config), of_kind(Propose, stop)
    )
    with pytest.raises(KeyboardInterrupt):
        measured(fed, config, parties)
    with pytest.raises(MessageError, match="not expected"):
        parties.parties["upper"].answer(Keep(round=1))


def stop(name: str, ask: Any) -> Any:
    raise KeyboardInterrupt


def test_people_who_are_aligned_anew_end_what_was_agreed_on() -> None:
    fed = federation()
    config = tied.Config(**SMALL)

    def aligned(name: str, ask: Any) -> Any:
        if name == "upper":
            align_people(LocalParties(parties.parties))
        return ask

    parties = Crooked(
        fed.parties("tied", run="r", config=config), of_kind(Propose, aligned)
    )
    with pytest.raises(MessageError, match="not expected"):
        measured(fed, config, parties)


@settings(max_examples=60, deadline=None)
@given(
    arrays(
        np.float32, (3, 4, 6), elements=st.sampled_from([0.0, 1.0, 0.5, 1e-38, 0.3])
    ),
    arrays(np.int64, 10, elements=st.integers(-(2**18), 2**18)),
    arrays(np.int64, (10, 4), elements=st.integers(-8192, 8192)),
    st.integers(1, 2**20),
    st.sampled_from([8, 45, 181]),
)
def test_no_vector_is_longer_than_the_scale_whatever_a_server_asks_for(
    values: Any, centre: Any, basis: Any, radius: int, scale: int
) -> None:
    """The first person has two rows: what counts is their average, and the average of
    their squares.
    """
    table = Images.from_array(values * 255, IMAGE, np.array([0, 0, 1]))
    held = ArrayPeople.at_places(Frame.from_schema(IMAGE, 10), table, np.arange(2))
    weights = np.where(on_diagonal(4).numpy(), 0.5, 1.0)
    for made in (
        held.joint(torch.from_numpy(centre), radius, scale),
        held.turned(torch.from_numpy(centre), torch.from_numpy(basis), radius, scale),
    ):
        assert np.array_equal(made.rows, np.rint(made.rows))
        assert all(sum(int(x) ** 2 for x in row) <= scale**2 for row in made.rows)
        each = made.words(0, 2).astype(object)
        if made.squared:
            assert (((each**2) @ weights) <= scale**4 / 2).all()
        else:
            assert ((each**2).sum(1) <= scale**2).all()
            alone = (
                replace(made, rows=made.rows[:2], starts=made.starts[:2])
                .triangle()
                .numpy()
                .astype(object)
            )
            wide = np.where(on_diagonal(made.rows.shape[1]).numpy(), 0.5, 1.0)
            assert (alone**2) @ wide <= scale**4 / 2


def test_a_person_counts_once_however_many_images_there_are() -> None:
    """Each image three times is as good as once; of different ones the averages are
    released, to the last bit.
    """
    config = tied.Config(**SMALL, target="side", private=False)

    def released(**changed: Any) -> Any:
        held, schemas = people(60)
        fed = Federation.rehearsal(
            held | changed, schemas, budget=Budget(math.inf, 1e-5), seed=1
        )
        return measured(fed, config)

    (upper, lower), (_, once) = (
        (people(60)[0][name].values for name in ("upper", "lower")),
        released(),
    )
    thrice = Images.from_array(
        np.repeat(upper, 3, 0) * 255, IMAGE, np.repeat(np.arange(60), 3)
    )
    _, again = released(upper=thrice)
    assert {*once} == {"means", "joint", "classes"}
    for name, parts in once.record.sums.items():
        assert all(
            torch.equal(again.record.sums[name][key], value)
            for key, value in parts.items()
        )
    both = Images.from_array(
        np.concatenate([upper, lower]) * 255, IMAGE, np.tile(np.arange(60), 2)
    )
    study, found = released(upper=both)
    own = found.record.terms["joint"]
    scale = study.scale("joint", 0.0)
    frame = study.frames[study.names.index("upper")]
    q = frame.coefficients(both.values) - own["centre"]["upper"].numpy()
    q = bounded(q, float(own["radius"]["upper"]), scale).reshape(60, 2, -1)
    side = (
        people(60)[0]["registry"].set_index("id").loc[np.arange(60), "side"].to_numpy()
    )
    tie = found.record.sums["joint"][group(study, "upper", "registry")].numpy()
    assert (tie[:, 0] == 127 * np.trunc(q.mean(1))[side == 0].sum(0)).all()
    within = found.record.sums["joint"][group(study, "upper")].numpy()
    assert (
        within
        == np.trunc(squares(q.reshape(120, -1)).reshape(60, 2, -1).mean(1)).sum(0)
    ).all()


class Coming(LocalParties):
    """Parties that are taken apart into their saved states, and rebuilt, before every
    single ask.
    """

    def __init__(self, fed: Federation, config: tied.Config) -> None:
        self.fed = fed
        self.config = config
        super().__init__(fed.parties("tied", run="r", config=config))

    def ask(self, message: Any, *, min_holders: int | None = None) -> dict[str, Any]:
        fresh = self.fed.parties("tied", run="r", config=self.config)
        for name, party in self.parties.items():
            fresh[name].load_state_dict(party.state_dict())
        self.parties = fresh
        return super().ask(message, min_holders=min_holders)


def test_a_party_that_comes_back_in_the_middle_goes_on_as_if_it_had_stayed() -> None:
    config = tied.Config(**SMALL, target="side")
    found = []
    for again in (False, True):
        fed = federation()
        stay = LocalParties(fed.parties("tied", run="r", config=config))
        outcome: Any = tied.train(
            config, Coming(fed, config) if again else stay, fed.schemas
        )
        spent = [holder.ledger.spend() for holder in fed.holders.values()]
        found.append((outcome.trained.network.state_dict(), spent))
    assert found[0][1] == found[1][1]
    assert all(torch.equal(found[0][0][key], found[1][0][key]) for key in found[0][0])


class Leaving(LocalParties):
    """Parties of which one goes away when classes are asked for."""

    left = False

    def ask(self, message: Any, *, min_holders: int | None = None) -> dict[str, Any]:
        asks = (
            dict.fromkeys(self.names, message)
            if isinstance(message, Ask)
            else dict(message)
        )
        self.left = self.left or any(
            isinstance(ask, Release) and ask.stage == "classes" for ask in asks.values()
        )
        if self.left and min_holders is None:
            raise PartyAway("lower is away.")
        here = {
            name: ask
            for name, ask in asks.items()
            if not (self.left and name == "lower")
        }
        return super().ask(here, min_holders=min_holders)


def test_without_the_last_release_the_others_are_fitted_and_the_statement_says_so():
    fed = federation()
    config = tied.Config(**SMALL, target="side")
    outcome = tied.train(
        config, Leaving(fed.parties("tied", run="r", config=config)), fed.schemas
    )
    assert "after 2 of 3 releases: lower went away" in outcome.trained.card["ended"]
    assert "did not take place" in str(outcome.privacy)
    assert len(Generator.from_parts(outcome.trained).sample(4, seed=0)) == 4


def test_a_run_is_resumed_after_any_release_and_nothing_is_measured_twice(
    tmp_path: Path,
) -> None:
    fed = federation()
    config = tied.Config(**SMALL, target="side")
    parties = LocalParties(fed.parties("tied", run="r", config=config))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            reading,
            "fit_tied",
            lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt()),
        )
        with pytest.raises(KeyboardInterrupt):
            tied.train(config, parties, fed.schemas, checkpoint=tmp_path)
    spent = [holder.ledger.spend() for holder in fed.holders.values()]
    outcome = tied.train(config, parties, fed.schemas, checkpoint=tmp_path, resume=True)
    assert [holder.ledger.spend() for holder in fed.holders.values()] == spent
    assert outcome.trained.card["ended"] == "after all releases"
    other = tied.Config(**SMALL, target="site")
    with pytest.raises(ConfigError, match="not what these settings ask for"):
        tied.train(other, parties, fed.schemas, checkpoint=tmp_path, resume=True)


# Bad input


def test_what_cannot_be_measured_is_refused_before_anything_is_charged() -> None:
    held, _ = people(40)
    labelled = ImageSchema(height=4, width=6, person="id", label="c", classes=(0, 1))
    bad: list[tuple[dict[str, Any], dict[str, Any], type[Exception], str]] = [
        ({"target": "nothing"}, held, ConfigError, 'no table has a column "nothing"'),
        (
            {},
            {
                "a": held["registry"],
                "b": held["registry"].rename(columns={"side": "s", "site": "t"}),
            },
            ConfigError,
            "gram is for tables alone",
        ),
        ({}, {"upper": held["upper"]}, ConfigError, "two parties or more"),
        (
            {},
            held
            | {
                "lower": Images.from_array(
                    np.zeros((40, 4, 6)), labelled, np.arange(40), labels=[0] * 40
                )
            },
            ConfigError,
            "takes classes from a table",
        ),
    ]
    other = Schema(
        columns=tuple(
            replace(c, name=n) for c, n in zip(TABLE.columns, ("s", "t"), strict=True)
        ),
        person="id",
    )
    for more, rows, error, words in bad:
        own = {
            name: TABLE if name in ("registry", "a") else other
            for name in rows
            if name in ("registry", "a", "b")
        }
        fed = Federation.rehearsal(
            rows, own, budget=Budget(2.0, 1e-5), seed=1, same_people=True
        )
        with pytest.raises(error, match=words):
            train("tied", fed, **SMALL | more)
        assert not any(holder.ledger.spend() for holder in fed.holders.values())


def test_a_party_that_is_told_another_schema_or_other_settings_refuses() -> None:
    fed = federation()
    config = tied.Config(**SMALL, target="side")
    parties = fed.parties("tied", run="r", config=config)
    begin = begin_of(fed, config)
    with pytest.raises(MessageError, match="was agreed to"):
        parties["upper"].answer(replace(begin, config=begin.config | {"features": 9}))
    wider = begin.schemas | {"upper": begin.schemas["lower"] | {"width": 7}}
    with pytest.raises(SchemaError, match="another schema"):
        parties["upper"].answer(replace(begin, schemas=wider))


@pytest.mark.parametrize(
    "bad",
    [
        {"features": 0},
        {"features": 5000},
        {"directions": 0},
        {"directions": 999},
        {"shares": (0.5, 0.5)},
        {"shares": (1e-9, 0.5, 0.5)},
        {"shares": (float("nan"), 0.5, 0.5)},
        {"target": 3},
        {"norms": 1.0},
        {"private": 1},
        {"chunk": 0},
        {"steps": 0},
    ],
)
def test_settings_out_of_range_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        tied.Config(**bad)


RUN = """
protocol = "tied"
out = "out"

[settings]
features = 10
directions = 4
components = 16
steps = 20
target = "side"

[parties.upper]
table = "upper.npz"
schema = "images.toml"
epsilon = 4
delta = 1e-5

[parties.registry]
table = "registry.csv"
schema = "registry.toml"
epsilon = 3
delta = 1e-5
"""


@pytest.mark.long
def test_a_run_file_is_carried_out_and_audited_and_its_generator_draws(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Images in one file, their label in another, ledgers on disk: the strictest
    holder's budget is what both pay.
    """
    held, _ = people(40)
    pixels = np.rint(held["upper"].values * 255).astype(np.uint8)
    np.savez(tmp_path / "upper.npz", images=pixels, id=held["upper"].people)
    held["registry"].to_csv(tmp_path / "registry.csv", index=False)
    IMAGE.save(tmp_path / "images.toml")
    TABLE.save(tmp_path / "registry.toml")
    (tmp_path / "run.toml").write_text(RUN)
    file = RunFile.load(tmp_path / "run.toml")
    result, out = run_file(file)
    assert not result.privacy.rehearsal
    for name in ("upper", "registry"):
        assert 2.9 < result.privacy.epsilon(name, "server") <= 3.0
    assert len(pd.read_parquet(out / "synthetic.parquet")) == 40
    drawn: Any = Generator.load(out).parts(7, seed=0)
    assert drawn["upper"].shape == (7, 4, 6)
    assert list(drawn["registry"].columns) == ["side", "site"]
    monkeypatch.setattr(auditing, "MIN_TRIALS", 10)
    few = {"features": 3, "directions": 1, "components": 2, "steps": 1}
    found = audit_run_file(
        file,
        tied.PROTOCOL,
        tied.Config(**dict(file.settings) | few),
        trials=10,
        people=4,
    )
    assert found.passed
