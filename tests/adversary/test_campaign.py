"""The enemy that stays, for some seconds; and that it would find what it looks for."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from campaign import Tally, campaign
from dp_accounting import NoOpDpEvent

from understudy.data.visits import counts
from understudy.privacy.gradients import critic, dp_sgd
from understudy.privacy.secure import moments
from understudy.privacy.secure.sums import Channel
from understudy.protocols.core.base import Party
from understudy.protocols.cross_device.host import HostParty
from understudy.protocols.papers.vertical_gans.party import GanParty

pytestmark = pytest.mark.usefixtures("short_fits")
Patch = pytest.MonkeyPatch
FEW = (
    "Central GAN",
    "VDGAN, PATE, two parties",
    "SignDS, Duchi",
    "DP-GenFL, rows at the ends of float32",
    "LoPub, three reports each, two hosts",
    "Two aggregators, two hosts",
    "Gram, rows, three parties",
    "Gram, columns, encrypted products",
    "Shared moments, images of two classes, two hosts",
    "SGDE by counts",
    "DPLT, two parties",
    "Moments, images of two classes, three parties",
    "Moments, two labels, by their classes",
    "Tied, a table, images and series, a label",
    "Visits, rows, three parties",
    "Visits, columns, two tables and events that are drawn",
)


BACK = (
    "Gram, rows, three parties",
    "Gram, columns, encrypted products",
    "DPLT, two parties",
    "Visits, rows, three parties",
    "SignDS, Duchi",
    "Tied, a table, images and series, a label",
    "Two aggregators, two hosts",
    "Central GAN",
)


def tried(*names: str, seed: int, trials: int, goes_back: bool = False) -> Tally:
    return campaign(
        seed=seed,
        trials=trials,
        only=lambda case: case.name in names,
        goes_back=goes_back,
    )


def kinds(tally: Tally) -> set[str]:
    return {kind.rsplit(" ", 1)[0] for _, kind in tally.found}


@pytest.mark.long
def test_a_short_campaign_finds_nothing() -> None:
    tally = tried(*FEW, seed=1, trials=len(FEW))
    assert not tally.found, tally.text()
    assert not any(kind == "failed inside" for _, kind in tally.tried), tally.text()
    assert sum(n for (_, kind), n in tally.tried.items() if kind == "paid") > 10
    assert sum(n for (_, kind), n in tally.tried.items() if kind == "refused") > 2


@pytest.mark.long
def test_a_short_campaign_that_goes_back_in_journals_finds_nothing() -> None:
    tally = tried(*BACK, seed=4, trials=len(BACK), goes_back=True)
    assert not tally.found, tally.text()
    assert not any(kind == "failed inside" for _, kind in tally.tried), tally.text()
    assert sum(
        n for (_, kind), n in tally.tried.items() if kind == "went back"
    ) >= 2 * len(BACK)
    assert sum(n for (_, kind), n in tally.tried.items() if kind == "paid") > 10


# Planted bugs


def pads_serve_twice(patch: Patch) -> None:
    """They do not follow from what was said, and nobody looks whether they were
    used.
    """
    mask = Channel.mask
    charge = Party.charge

    def same(line: Channel, *place: Any, about: bytes = b"") -> Any:
        digests = line._sent_digest, line._received_digest
        line._sent_digest = line._received_digest = bytes(32)
        words = mask(line, *place)
        line._sent_digest, line._received_digest = digests
        return words

    patch.setattr(Channel, "mask", same)
    patch.setattr(
        Party,
        "charge",
        lambda party, *of, **more: charge(party, *of, **more | {"once": False}),
    )


def test_a_server_that_goes_back_finds_pads_that_serve_twice(
    monkeypatch: Patch,
) -> None:
    pads_serve_twice(monkeypatch)
    for seed in range(1, 9):
        tally = tried("Gram, rows, three parties", seed=seed, trials=1, goes_back=True)
        if "pads" in kinds(tally):
            return
    raise AssertionError(tally.text())


def a_person_is_not_clipped(patch: Patch) -> None:
    real = critic.clipped_gradient_sum
    patch.setattr(
        critic,
        "clipped_gradient_sum",
        lambda *rows, **more: real(*rows, **more | {"clip_norm": 1e6}),
    )


def a_row_is_not_clipped(patch: Patch) -> None:
    real = dp_sgd.clipped_sums
    patch.setattr(
        dp_sgd,
        "clipped_sums",
        lambda *rows, **more: real(*rows, **more | {"clip_norm": 1e6}),
    )


def noise_is_left_out(patch: Patch) -> None:
    patch.setattr(critic, "add_noise", lambda sums, deviation, rng: sums)
    patch.setattr(dp_sgd, "add_noise", lambda sums, deviation, rng: sums)


def a_charge_is_forgotten(patch: Patch) -> None:
    """An entry is made, and it costs nothing."""

    def free(
        party: Any, description: str, outsider: int, anyone: int | None = None
    ) -> Any:
        return party.ledger.charge(
            NoOpDpEvent(), run=party.run, description=description
        )

    patch.setattr(GanParty, "pay", free)


def a_receipt_is_used_twice(patch: Patch) -> None:
    real = GanParty.pay
    kept = {}

    def once(party: Any, *uses: Any) -> Any:
        return (
            kept[party] if party in kept else kept.setdefault(party, real(party, *uses))
        )

    patch.setattr(GanParty, "pay", once)


def a_refusal_tells_a_row(patch: Patch) -> None:
    real = HostParty._round

    def curious(party: Any, ask: Any) -> Any:
        if float(party.population.rows.double().sum()) % 2 < 1:
            raise ValueError("these rows are odd")
        return real(party, ask)

    patch.setattr(HostParty, "_round", curious)


def a_vector_is_not_pulled_in(patch: Patch) -> None:
    patch.setattr(moments, "bounded", lambda rows, radius, scale: rows)


def an_event_weighs_as_much_as_a_person(patch: Patch) -> None:
    patch.setattr(
        counts, "parts", lambda order, numbers, unit: np.full(len(order), float(unit))
    )


GAN = "Central GAN"
GEN_FL = "DP-GenFL, rows at the ends of float32"


@pytest.mark.long
@pytest.mark.parametrize(
    ("plant", "where", "kind"),
    [
        (a_person_is_not_clipped, GAN, "bound"),
        (a_row_is_not_clipped, GEN_FL, "bound"),
        (noise_is_left_out, GAN, "noise"),
        (noise_is_left_out, GEN_FL, "noise"),
        (an_event_weighs_as_much_as_a_person, "Visits, rows, three parties", "bound"),
        (a_charge_is_forgotten, GAN, "price"),
        (a_receipt_is_used_twice, GAN, "receipt"),
        (
            a_vector_is_not_pulled_in,
            "Tied, a table, images and series, two releases",
            "bound",
        ),
        (a_refusal_tells_a_row, "LoPub, three reports each, two hosts", "course"),
    ],
)
def test_a_planted_bug_is_found(
    plant: Callable[[Patch], None], where: str, kind: str, monkeypatch: Patch
) -> None:
    plant(monkeypatch)
    tally = Tally()
    for seed in range(1, 9):  # whether a trial meets it is chance, fixed by the seed
        tally = tried(where, seed=seed, trials=1)
        if kind in kinds(tally):
            return
    raise AssertionError(tally.text())
