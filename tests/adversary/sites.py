"""Where rows enter what leaves a party: every mechanism, with a tap on it.

Two worlds are asked the same, one after the other; they differ in one person's row. A
tap compares what goes into the noise in both, which may differ by the mechanism's bound
alone, and then hands the first world's noisy result to the second, too. From there on
everything is post-processing, so that the two worlds must not differ in any answer or
refusal: what does has passed the mechanisms by. (That is the argument by which prices
compose.)
"""

import hashlib
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from understudy.data.encoding.frame import on_diagonal
from understudy.models.tables.spikes import Spikes
from understudy.models.tables.trees import Trees
from understudy.privacy.accounts.accounting import DpEvent, PureDp
from understudy.privacy.gradients.pate import GradientVote
from understudy.privacy.local.naming import NearestCodes
from understudy.privacy.local.rappor import Rappor
from understudy.privacy.secure.lwe import Adder
from understudy.privacy.secure.moments import sensitivity
from understudy.privacy.secure.sums import Channel
from understudy.protocols.aggregators.host import UploadParty
from understudy.protocols.cross_device.rounds import LearningParty
from understudy.protocols.gram import stages as gram_stages
from understudy.protocols.moments.stages import First, Lengths, Levels, Pooled, Within
from understudy.protocols.one_report import party as one_report_party
from understudy.protocols.papers.gen_fl import local as gen_fl_local
from understudy.protocols.papers.gen_fl import protocol as gen_fl
from understudy.protocols.papers.sgde import counted as sgde_counted
from understudy.protocols.papers.sgde import offering as sgde_offering
from understudy.protocols.papers.sgde import training as sgde_training
from understudy.protocols.papers.verti_gan import dplt_tree
from understudy.protocols.papers.vertical_gans import critic_round
from understudy.protocols.tied import stages as tied_stages
from understudy.protocols.tied.stages import Numbers
from understudy.protocols.visits import protocol as visits_protocol

SLACK = 1e-3  # of a bound: what float32 sums round
PROBED = 3  # people of a batch who are left out in turn


@dataclass
class Passage:
    """One use of a mechanism in the first world: what went in before the noise, and
    what came out.
    """

    what: str
    before: Tensor
    after: Any
    # where the party's generator was then: how much a mechanism draws may depend on
    # what it is given
    rng: Any


@dataclass
class Sites:
    """The taps of one trial. `found` is told of everything that must not be."""

    found: Callable[[str, str], None]
    world: int = 0
    holder: Any = None  # the party that is answering, and what it was asked
    ask: Any = None
    passages: list[Passage] = field(default_factory=list)
    place: int = 0
    # "party, person" → price
    used: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))

    def begin(self, world: int, holder: Any, ask: Any) -> None:
        self.world = world
        self.holder = holder
        self.ask = ask
        self.place = 0
        if world == 0:
            self.passages = []

    def end(self) -> None:
        if self.world and self.place != len(self.passages):
            self.found("course", "one world used a mechanism that the other did not")

    def through(
        self,
        what: str,
        before: Tensor,
        after: Any,
        moved: Callable[[Tensor], Tensor],
        bound: float,
    ) -> Any:
        """`moved` of the difference between the worlds is at most `bound`; the first
        world's result for both.
        """
        before = before.detach().double().clone()
        if not bool(before.isfinite().all()):
            self.found("not finite", f"{what}: what goes into the noise is not finite")
        if self.world == 0:
            self.passages.append(
                Passage(what, before, _copy(after), self.holder.rng.state_dict())
            )
            return after
        if (
            self.place >= len(self.passages)
            or self.passages[self.place].before.shape != before.shape
        ):
            self.found(
                "course", f"{what}: the two worlds do not use their mechanisms alike"
            )
            return after
        first = self.passages[self.place]
        self.place = self.place + 1
        by = float(moved(before - first.before)) if before.numel() else 0.0
        if not by <= bound * (1 + SLACK):
            self.found(
                "bound",
                f"{what}: one person moved it by {by:g}, and {bound:g} is promised",
            )
        self.holder.rng.load_state_dict(first.rng)
        return _copy(first.after)

    def use(self, price: str, times: int = 1, people: Tensor | None = None) -> None:
        """What was used is to be paid: by everyone, or by each of these."""
        if self.world == 0:
            for person in ["all"] if people is None else people.tolist():
                self.used[f"{self.holder.name}, {person}"][price] += times


class Heard:
    """A generator of noise that remembers its normals."""

    def __init__(self, rng: Any) -> None:
        self._rng = rng
        self.normals = torch.empty(0, dtype=torch.float64)

    def normal(self, *shape: int, device: Any = "cpu") -> Tensor:
        drawn: Tensor = self._rng.normal(*shape, device=device)
        self.normals = torch.cat([self.normals, drawn.flatten().double()])
        return drawn

    def __getattr__(self, name: str) -> Any:
        return getattr(self._rng, name)


def sampled(rate: float, noise: float) -> str:
    """The name of a price: a Gaussian of this noise, on a sample of this rate."""
    return f"gaussian {noise:.6g}, sampled {min(rate, 1.0):.6g}"


def named(event: DpEvent) -> str:
    """The same of an event in a ledger."""
    if isinstance(event, PureDp):
        return f"pure {event.epsilon:.6g}"
    inner = getattr(event, "event", event)
    rate = getattr(event, "sampling_probability", 1.0)
    return sampled(rate, getattr(inner, "noise_multiplier", math.nan))


def length(difference: Tensor) -> Tensor:
    return torch.linalg.vector_norm(difference)


def flat(parts: Any) -> Tensor:
    pieces = [
        part
        for pair in parts
        for part in (pair if isinstance(pair, tuple) else (pair,))
    ]
    return torch.cat([piece.detach().flatten().double() for piece in pieces])


def _copy(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.clone()
    return type(value)(map(_copy, value)) if isinstance(value, list | tuple) else value


@contextmanager
def tapped(sites: Sites) -> Iterator[None]:
    """All mechanisms under taps, as they are at this moment: also with a bug in
    them.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Channel, "_nonce", _told_alike)
        for name in ("private_critic_gradient", "formed_critic_gradient"):
            patch.setattr(
                critic_round, name, _critic(sites, getattr(critic_round, name))
            )
        patch.setattr(
            gen_fl_local, "private_sums", _sums(sites, gen_fl_local.private_sums)
        )
        patch.setattr(gen_fl, "ratio", _ratio(sites, gen_fl.ratio))
        patch.setattr(
            sgde_training, "add_noise", _noised(sites, sgde_training.add_noise)
        )
        patch.setattr(
            sgde_offering,
            "noisy_level_counts",
            _levels(sites, sgde_offering.noisy_level_counts),
        )
        patch.setattr(GradientVote, "decide", _vote(sites, GradientVote.decide))
        patch.setattr(
            sgde_counted,
            "count_right",
            _counts(sites, sgde_counted.count_right, "figure of quality"),
        )
        patch.setattr(
            gram_stages,
            "gram_matrix",
            _counts(sites, gram_stages.gram_matrix, "Gram block"),
        )
        patch.setattr(Trees, "count", _counts(sites, Trees.count, "fine tables"))
        patch.setattr(Spikes, "count", _counts(sites, Spikes.count, "digits of spikes"))
        patch.setattr(
            gram_stages,
            "triple_table",
            _counts(sites, gram_stages.triple_table, "three-way table"),
        )
        patch.setattr(
            gram_stages, "sums_of_threes", _signs(sites, gram_stages.sums_of_threes)
        )
        patch.setattr(
            visits_protocol,
            "count_visits",
            _events(sites, visits_protocol.count_visits),
        )
        patch.setattr(
            visits_protocol, "person_vectors", _vectors(visits_protocol.person_vectors)
        )
        for stage in (Lengths, First, Levels, Pooled, Within):
            patch.setattr(stage, "_sums_of", _moments(sites, stage._sums_of))
        patch.setattr(
            tied_stages,
            "gram_matrix",
            _counts(sites, tied_stages.gram_matrix, "Gram block"),
        )
        patch.setattr(Adder, "answer", _answer(sites, Adder.answer))
        patch.setattr(Numbers, "triangle", _triangle(sites, Numbers.triangle))
        patch.setattr(Numbers, "words", _short(sites, Numbers.words))
        patch.setattr(
            dplt_tree,
            "pair_tables",
            _counts(sites, dplt_tree.pair_tables, "two-way tables"),
        )
        patch.setattr(dplt_tree, "_choose", _choice(sites, dplt_tree._choose))
        patch.setattr(
            LearningParty, "told_updates", _told(sites, LearningParty.told_updates)
        )
        patch.setattr(Rappor, "__call__", _bits(sites, Rappor.__call__))
        patch.setattr(UploadParty, "uploaded", _split(sites, UploadParty.uploaded))
        patch.setattr(
            one_report_party, "randomized", _subsets(sites, one_report_party.randomized)
        )
        patch.setattr(NearestCodes, "__call__", _codes(sites, NearestCodes.__call__))
        yield


def _answer(sites: Sites, real: Any) -> Any:
    """What a holder adds up of another's encrypted rows: u of one person's levels is
    other words, which a fresh zero and the flood hide at a price for all levels.
    """

    def answer(adder: Adder, name: str, *rest: Any) -> Any:
        room = adder.rooms[name]
        added = torch.from_numpy(adder._sums[name][:, 0].astype(np.float64))
        return sites.through(
            "sums of encrypted rows",
            added,
            real(adder, name, *rest),
            torch.count_nonzero,
            room.widths[1],
        )

    return answer


def _told_alike(line: Channel) -> bytes:
    """Nonces that are the same in both worlds: pads follow from them."""
    return hashlib.sha256(f"{line.name} {line.peer} {line.sent}".encode()).digest()[:12]


def _critic(sites: Sites, real: Any) -> Any:
    def gradient(layers: Any, rows: Tensor, *rest: Any, **settings: Any) -> Any:
        clip, noise, batch = (
            settings[key] for key in ("clip_norm", "noise_multiplier", "expected_batch")
        )
        config = sites.holder.config
        people = sites.holder.aligned.rows
        sites.use(sampled(config.batch / people, noise))

        def total(mask: Tensor) -> Tensor:
            bare = settings | {"noise_multiplier": 0.0, "mask": mask}
            return batch * flat(real(layers, rows, *rest, **bare))

        everybody = (
            torch.ones(len(rows)) if settings["mask"] is None else settings["mask"]
        )
        whole = total(everybody)
        for person in torch.randperm(len(rows))[:PROBED].tolist():
            others = everybody.clone()
            others[person] = 0
            by = float((whole - total(others)).norm())
            if not by <= clip * (1 + SLACK):
                sites.found(
                    "bound",
                    f"critic: without one person it moves by {by:g}, and {clip:g} "
                    "is promised",
                )
        heard = Heard(settings["rng"])
        noisy = real(layers, rows, *rest, **settings | {"rng": heard})
        _added(
            sites,
            "critic",
            batch * flat(noisy) - whole,
            noise * clip * heard.normals,
            noise * clip,
        )
        return sites.through("critic", whole, noisy, length, 2 * clip)

    return gradient


def _added(
    sites: Sites, what: str, added: Tensor, drawn: Tensor, deviation: float
) -> None:
    """The noise is there: as many numbers as the sum has, from the party's generator,
    at their scale.
    """
    if added.shape != drawn.shape or float(
        (added - drawn).abs().max()
    ) > 0.05 * deviation + 1e-5 * float(added.abs().max()):
        sites.found(
            "noise",
            f"{what}: what was added is not the noise of deviation {deviation:g} "
            "that was drawn",
        )


def _sums(sites: Sites, real: Any) -> Any:
    def sums(
        losses: Tensor,
        taps: Any,
        *,
        clip_norm: float,
        noise_multiplier: float,
        rng: Any,
        mask: Any,
    ) -> Any:
        config = sites.holder.config
        heard = Heard(rng)
        noisy = real(
            losses,
            taps,
            clip_norm=clip_norm,
            noise_multiplier=noise_multiplier,
            rng=heard,
            mask=mask,
        )
        if sum(part.numel() for part in noisy) != heard.normals.numel():
            sites.found(
                "noise", "clipped sums: no noise was drawn for them, or too little"
            )
            return noisy
        people = sites.holder.places[sites.ask.people]
        sites.use(sampled(config.batch / config.rows, noise_multiplier), people=people)
        deviation = clip_norm * noise_multiplier
        # exact but for the rounding of the noise
        before = flat(noisy) - deviation * heard.normals
        return sites.through(
            "clipped sums",
            before,
            noisy,
            length,
            2 * clip_norm + 1e-5 * deviation * len(before) ** 0.5,
        )

    return sums


def _ratio(sites: Sites, real: Any) -> Any:
    def ratio(y: Tensor, mask: Tensor, classes: int, noise: float, rng: Any) -> Any:
        counts = (torch.nn.functional.one_hot(y, classes) * mask[..., None]).sum(1)
        return sites.through(
            "class ratio",
            counts,
            real(y, mask, classes, noise, rng),
            lambda d: d.abs().sum(),
            2.0,
        )

    return ratio


def _noised(sites: Sites, real: Any) -> Any:
    def add_noise(sums: list[Tensor], deviation: float, rng: Any) -> Any:
        recipe = sites.holder.recipe
        heard = Heard(rng)
        before = flat(sums)
        sites.use(sampled(recipe.rate, deviation / recipe.clip_norm))
        real(sums, deviation, heard)
        _added(
            sites, "β-VAE", flat(sums) - before, deviation * heard.normals, deviation
        )
        same = sites.through("β-VAE", before, list(sums), length, 2 * recipe.clip_norm)
        for part, first in zip(sums, same, strict=True):
            part.copy_(first)
        return sums

    return add_noise


def _levels(sites: Sites, real: Any) -> Any:
    def levels(
        rows: Tensor, codes: Tensor, classes: int, sigma: float, rng: Any
    ) -> Any:
        counts = torch.zeros(classes, rows.shape[1], dtype=torch.int64).index_add_(
            0, codes, rows.cpu().long()
        )
        columns = len(sites.holder.requirements.schema.columns) - 1
        after = real(rows, codes, classes, sigma, rng)
        if torch.equal(after, counts.double() + float((after - counts).flatten()[0])):
            sites.found("noise", "counts of levels: they are bare")
        return sites.through(
            "levels", counts, after, lambda d: d.abs().sum(), 2.0 * columns
        )

    return levels


def _vote(sites: Sites, real: Any) -> Any:
    def decide(vote: GradientVote, votes: Tensor, rng: Any) -> Any:
        heard = Heard(rng)
        decided = real(vote, votes, heard)
        if vote.noise_multiplier and heard.normals.numel() != votes.numel():
            sites.found("noise", "votes: no noise was drawn for them")
        sites.use(sampled(1.0, vote.noise_multiplier), len(votes))
        return sites.through(
            "votes",
            votes,
            decided,
            lambda d: d.norm(dim=1).max(),
            2 * math.sqrt(vote.top),
        )

    return decide


def _counts(sites: Sites, real: Any, what: str) -> Any:
    def counts(*inputs: Any, **more: Any) -> Any:
        table = real(*inputs, **more)
        return sites.through(what, table, table, lambda d: d.abs().max(), 1.0)

    return counts


def _signs(sites: Sites, real: Any) -> Any:
    """A person moves each sum by 1: another one in their place by 2 at most."""

    def sums(signs: Tensor) -> Any:
        counted = real(signs)
        return sites.through("threes", counted, counted, lambda d: d.abs().max(), 2.0)

    return sums


def _moments(sites: Sites, real: Any) -> Any:
    def count(stage: Any, rows: Any) -> Any:
        sums = real(stage, rows)
        weights = torch.where(stage.diagonal, math.sqrt(0.5), 1.0)
        return sites.through(
            "moments",
            sums,
            sums,
            lambda d: length(d * weights),
            2.0 * stage.sensitivity,
        )

    return count


def _triangle(sites: Sites, real: Any) -> Any:
    def triangle(numbers: Numbers) -> Any:
        sums = real(numbers)
        weights = torch.where(on_diagonal(numbers.rows.shape[1]), math.sqrt(0.5), 1.0)
        bound = 2.0 * sensitivity(numbers.scale, across=False)
        return sites.through(
            "second moments", sums, sums, lambda d: length(d * weights), bound
        )

    return triangle


def _short(sites: Sites, real: Any) -> Any:
    """What goes into products leaves masked; nobody's vector is longer than the price
    of their sum says.
    """

    def words(numbers: Numbers, start: int, stop: int) -> Any:
        if bool((numbers.rows**2).sum(1).max(initial=0.0) > numbers.scale**2):
            sites.found("bound", f"a vector is longer than {numbers.scale}")
        return real(numbers, start, stop)

    return words


def _events(sites: Sites, real: Any) -> Any:
    def count(codes: Any, layout: Any, unit: int) -> Any:
        cells = torch.from_numpy(real(codes, layout, unit))
        return sites.through(
            "tables of events", cells, cells, length, 2.0 * layout.sensitivity(unit)
        ).numpy()

    return count


def _vectors(real: Any) -> Any:
    """What products are made of: in each column every person weighs `root`, or
    nothing.
    """

    def vectors(codes: Any, layout: Any, root: int) -> Any:
        found = real(codes, layout, root)
        ends = np.cumsum((*layout.people, *layout.events))[:-1]
        for column in np.split(found, ends, axis=1):
            assert set(column.sum(1).tolist()) <= {0, root}
            assert (column >= 0).all()
        return found

    return vectors


def _choice(sites: Sites, real: Any) -> Any:
    def choose(noise: float, rng: Any, scores: Tensor, sensitivity: int) -> Any:
        chosen = real(noise, rng, scores, sensitivity)
        return sites.through(
            "choice", scores, chosen, lambda d: d.abs().max(), 2.0 * float(sensitivity)
        )

    return choose


def _told(sites: Sites, real: Any) -> Any:
    """A local mechanism is private for whatever update it is told; that one is finite,
    and told as often as paid.
    """

    def told(party: Any, people: Tensor, weights: Tensor) -> Any:
        updates = real(party, people, weights)
        sites.use(named(party.hosting.event), people=people)
        return sites.through("update", updates, updates, length, math.inf)

    return told


def _bits(sites: Sites, real: Any) -> Any:
    def bits(rappor: Rappor, rows: Any, rng: Any) -> Any:
        sites.use(named(rappor.event), people=sites.holder.places[sites.ask.people])
        return sites.through(
            "row", torch.as_tensor(rows), real(rappor, rows, rng), length, math.inf
        )

    return bits


def _split(sites: Sites, real: Any) -> Any:
    """What is uploaded is uniform to either aggregator, whatever it is about; one
    person has one upload. A vector is no longer than the price is for.
    """

    def uploaded(party: Any, people: Tensor) -> Any:
        for event, count in party.plan.price.items():
            sites.use(named(event), count, people=people)
        found = real(party, people)
        radius = getattr(party.plan.cells, "radius", None)
        if radius is not None and bool(
            (found[:, 1:].square().sum(1) > radius**2).any()
        ):
            sites.found("bound", f"upload: a vector is longer than {radius}")
        return sites.through(
            "upload", found, found, lambda d: (d != 0).any(1).sum(), 1.0
        )

    return uploaded


def _codes(sites: Sites, real: Any) -> Any:
    def codes(mechanism: Any, scores: Tensor, rng: Any) -> Any:
        sites.use(
            named(PureDp(mechanism.epsilon)),
            people=sites.holder.places[sites.ask.people],
        )
        return sites.through(
            "row", scores, real(mechanism, scores, rng), length, math.inf
        )

    return codes


def _subsets(sites: Sites, real: Any) -> Any:
    def subsets(
        rows: Tensor, which: Tensor, sets: Any, epsilon: float, rng: Any
    ) -> Any:
        sites.use(named(PureDp(epsilon)), people=sites.holder.places[sites.ask.people])
        return sites.through(
            "row", rows, real(rows, which, sets, epsilon, rng), length, math.inf
        )

    return subsets
