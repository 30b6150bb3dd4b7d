"""Audits that take minutes: finer bugs than those that the tests plant, under seeds
that are drawn anew.

    make audit                                  # about four minutes on two cores
    make audit ONLY=moments SEED=7              # what has this word in its name, again
                                                by that seed
    python tests/evaluate/long_audit.py --clean # besides, how often a close look accuses code as it is: half an hour

Each run is audited as it is, on made-up rows, and must keep its claim. Then something
is broken that its guarantee rests on (a third less noise, a person who counts for more
than was paid, one person twice, masks used again), and that must be seen. Laws given
rules are fitted more closely than in the tests. It prints the seed and what it found,
and exits with 1 where a claim is broken or a bug is not seen.

Guarantee: code that keeps its claims is called broken with probability at most
`FALSE_ALARM`, over all runs together.
Edges: a bug can be overlooked by bad luck; each is looked at up to three times, and
seldom more than once.
"""

import argparse
import math
import secrets
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field, replace
from fractions import Fraction
from multiprocessing import get_context
from pathlib import Path
from typing import Any

sys.path += [str(Path(__file__).parents[1] / folder) for folder in ("", "models")]

import numpy as np
import pytest
import tomli_w
import torch
from scipy.stats import beta
from test_given_rules import CASES, as_a_law_and_as_zeros, furthest_pair

from understudy.data.arrays import ArrayTable
from understudy.data.images import ImageSchema
from understudy.data.schema import Boolean, Integer, Schema
from understudy.data.table import Table
from understudy.data.visits import Visits, counts
from understudy.evaluate.audit.audit_file import case_from_run
from understudy.evaluate.audit.auditing import (
    Case,
    RecordingParties,
    audit_protocol,
    rehearsal_options,
)
from understudy.evaluate.audit.bounds import Block, Key
from understudy.evaluate.audit.joint_canary import (
    AggregatorsAudit,
    JointAudit,
    SumsAudit,
)
from understudy.privacy.accounts.accounting import Spend
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.gradients import critic
from understudy.privacy.local.naming import NearestCodes, SubsetSelection
from understudy.privacy.local.selection import EmMds
from understudy.privacy.noise import DiscreteGaussianNoise, Normals, SecureRng
from understudy.privacy.secure import counts as secure_counts
from understudy.privacy.secure import moments as secure_moments
from understudy.privacy.secure import ring
from understudy.protocols.papers.verti_gan import protocol as verti_gan
from understudy.protocols.papers.verti_gan.protocol import VertiGanParty
from understudy.protocols.papers.vertical_gans.critic_round import (
    CriticRound,
    PresampledNormals,
)
from understudy.runs.registry import protocol_named
from understudy.runs.runfile import RunFile
from visit_cases import clinic

FALSE_ALARM = 0.01
# a claim at which few trials see much: neither is all told apart, nor nothing
EPSILON = 10.0
DELTA = 1e-3
PEOPLE = 4
TRIALS = 400
# by the dealer, by the holder who masks with it, and by that holder again for the
# product
DRAWN = 3
MANY = 10  # close looks at a bug, which must be seen in all
LOOKS = (200, 400, 800)  # at a bug, one after another until it is seen
TARGET = "a"

XY = Schema(columns=(Boolean(name="x"), Boolean(name="y")))
Z = Schema(columns=(Boolean(name="z"),))
NUMBERS = Schema(columns=(Integer(name="age", low=0, high=40), Boolean(name="x")))
IMAGES = ImageSchema(height=2, width=3)
LABELLED = replace(IMAGES, label="c", classes=(0, 1))


@dataclass(frozen=True)
class Run:
    """A protocol with parties of these schemas, and settings."""

    protocol: str
    schemas: dict[str, Any]
    settings: dict[str, Any] = field(default_factory=dict)

    def case(self) -> Case:
        """As `understudy audit` would set it up for this run file."""
        with tempfile.TemporaryDirectory() as name:
            home = Path(name)
            for party, schema in self.schemas.items():
                schema.save(home / f"{party}.toml")
            section = {"table": "none", "epsilon": EPSILON, "delta": DELTA}
            parties = {
                party: section | {"schema": f"{party}.toml"} for party in self.schemas
            }
            body = {
                "protocol": self.protocol,
                "out": "out",
                "parties": parties,
                "settings": self.settings,
            }
            (home / "run.toml").write_text(tomli_w.dumps(body))
            file = RunFile.load(home / "run.toml")
            protocol = protocol_named(self.protocol)
            config = protocol.configured(file.settings)
            return case_from_run(file, protocol, config, party=TARGET, people=PEOPLE)


_TWO = {"aggregator": "second", "epsilon": EPSILON, "delta": DELTA}
RUNS = {
    "gram": Run("gram", {TARGET: XY}),
    "gram over columns": Run("gram", {TARGET: XY, "b": Z}, {"chunk": 2}),
    "gram over rows": Run("gram", {TARGET: NUMBERS, "b": NUMBERS}, {"fine": 0.5}),
    "gram, levels bought": Run("gram", {TARGET: NUMBERS}, {"fine": 0.5}),
    "gram with a target": Run(
        "gram", {TARGET: XY}, {"target": "x", "first_pass_share": 0.3}
    ),
    "moments": Run("moments", {TARGET: LABELLED}, {"features": 6, "norms": 0.1}),
    "tied": Run(
        "tied",
        {TARGET: IMAGES, "b": Z},
        {
            "features": 6,
            "directions": 2,
            "components": 2,
            "steps": 1,
            "target": "z",
            "norms": 0.1,
        },
    ),
    "visits": Run("visits", {TARGET: clinic()}),
    "two-aggregators": Run("two-aggregators", {TARGET: XY, "second": XY}, _TWO),
    "shared-moments": Run(
        "shared-moments",
        dict.fromkeys((TARGET, "second"), replace(LABELLED, width=2)),
        _TWO | {"features": 3, "bits": 5},
    ),
}


class TwiceRound(CriticRound):
    """A party's real critic round, in which every step is taken twice by the same
    noise, first without one person.
    """

    def __call__(self, batches: Sequence[torch.Tensor], seed: int) -> torch.Tensor:
        self.moved = list[torch.Tensor]()
        self.left = list[torch.Tensor]()
        return super().__call__(batches, seed)

    def step(
        self,
        real: torch.Tensor,
        fake: torch.Tensor,
        mix: torch.Tensor,
        noise: Normals,
        mask: torch.Tensor | None = None,
    ) -> None:
        drawn = noise.normal(self._noise(1))
        before = deepcopy(self.state_dict())
        # the canary is the first, and nobody else is like it
        others = (real != self.rows[0]).any(1)
        assert int((~others).sum()) == 1

        def taken(who: torch.Tensor) -> torch.Tensor:
            self.load_state_dict(before)
            CriticRound.step(
                self, real[who], fake[who], mix[who], PresampledNormals(drawn)
            )
            parts = [parameter.grad.flatten() for parameter in self.critic.parameters()]
            return self.batch * torch.cat(parts).double()

        honest = self.noise_multiplier
        self.noise_multiplier = 0.0
        known = taken(others)
        self.noise_multiplier = honest
        without = taken(others)
        self.left.append(without - known)
        self.moved.append(taken(torch.ones_like(others)) - without)


class TwiceParty(VertiGanParty):
    """All but its critic round is as it is."""

    round_type = TwiceRound


class CriticAudit(SumsAudit):
    """A run of `verti-gan` with everybody in every step, so that its steps are Gaussian
    releases one after another.
    """

    def party(self, name: str, present: bool, seed: int) -> VertiGanParty:
        kind = TwiceParty if name == self.target else VertiGanParty
        return kind(
            name,
            self.rows(name, 0, self.people),
            **rehearsal_options(name, self.budgets[name], seed),
        )

    def measure_canary(self, number: int) -> tuple[dict[Key, Block], Spend]:
        """What the canary moves all noised gradients by."""
        parties = self.build_parties(True, number)
        verti_gan.train(self.config, RecordingParties(parties), self.schemas)
        target = parties[self.target]
        moved, noise = (
            torch.cat(side).numpy()
            for side in (target.critic_round.moved, target.critic_round.left)
        )
        stated = (target.noise_multiplier * self.config.clip_norm) ** 2
        return {stated: Block(moved, noise, stated)}, target.ledger.spend()


FEW_STEPS = {
    "rounds": 1,
    "critic_steps": 10,
    "batch": PEOPLE,
    "latent": 4,
    "common": [8],
    "critic_hidden": [32, 16],
}
SQUARE = ImageSchema(height=6, width=6, label="c", classes=tuple(range(8)))
EIGHTS = tuple(Integer(name=f"c{number}", low=0, high=7, bins=8) for number in range(9))
TIGHT = {
    "gram": Run("gram", {TARGET: Schema(columns=EIGHTS[:6])}),
    "gram over columns": Run(
        "gram", {TARGET: Schema(columns=EIGHTS[:5]), "b": Schema(columns=EIGHTS[5:])}
    ),
    "gram with a target": Run(
        "gram", {TARGET: Schema(columns=EIGHTS[:6])}, {"target": "c0"}
    ),
    "moments": Run("moments", {TARGET: SQUARE}, {"features": 36, "norms": 0.1}),
    "tied": Run(
        "tied",
        {
            TARGET: replace(SQUARE, label=None, classes=()),
            "b": Schema(columns=EIGHTS[:4]),
        },
        {
            "features": 24,
            "directions": 8,
            "components": 2,
            "steps": 1,
            "target": "c0",
            "norms": 0.1,
        },
    ),
    "visits": RUNS["visits"],
    "two-aggregators": Run(
        "two-aggregators", dict.fromkeys((TARGET, "second"), Schema(columns=EIGHTS[:6]))
    ),
    "shared-moments": Run(
        "shared-moments", dict.fromkeys((TARGET, "second"), SQUARE), {"features": 36}
    ),
    "verti-gan": Run(
        "verti-gan", {TARGET: Schema(columns=EIGHTS[:2]), "b": Z}, FEW_STEPS
    ),
}
PRICES = (1.0, 8.0)


def tight_audit(
    run: str, epsilon: float
) -> JointAudit | AggregatorsAudit | CriticAudit:
    """Such a run at this price, as its server and everybody but one person see it."""
    one = TIGHT[run]
    protocol = protocol_named(one.protocol)
    settings = one.settings
    told: dict[str, Any] = {"schemas": one.schemas, "target": TARGET, "people": PEOPLE}
    told["budgets"] = dict.fromkeys(one.schemas, Budget(epsilon, 1e-6))
    if protocol.audit == "aggregators":
        settings = settings | {
            "aggregator": "second",
            "epsilon": epsilon,
            "delta": 1e-6,
            "min_people": 1,
        }
        return AggregatorsAudit(config=protocol.configured(settings), **told)
    config = protocol.configured(settings)
    if protocol.study is None:
        return CriticAudit(config=config, **told)
    return JointAudit(study=protocol.study, config=config, **told)


REPORTS = 100_000


def _named(epsilon: float, person: int, rng: Any) -> torch.Tensor:
    """Of one-report: whether the first cell is named and the second not, by people of
    the one or the other.
    """
    reports = SubsetSelection(epsilon=epsilon, cells=24)(
        torch.full((REPORTS,), person), rng
    )
    return (reports == 0).any(1) & ~(reports == 1).any(1)


def _chosen(epsilon: float, person: int, rng: Any) -> torch.Tensor:
    """Of sign-ds: whether enough indices are of the first half and too few of the
    second.
    """
    mechanism = EmMds(epsilon=epsilon, dims=16, top=8, chosen=4)
    half = torch.arange(16) // 8 == person
    indices = mechanism.choose(half.float().expand(REPORTS, -1), rng)
    first = (indices < 8).sum(1)
    second = (indices >= 8).sum(1)
    return (first >= mechanism.threshold) & (second < mechanism.threshold)


def _coded(epsilon: float, person: int, rng: Any) -> torch.Tensor:
    """Of class-means: whether a codeword is named that is near for the one person and
    not for the other.
    """
    mechanism = NearestCodes(epsilon=epsilon, codes=16, near=4)
    near = torch.arange(16) // 4 == person
    return mechanism(near.float().expand(REPORTS, -1), rng) < 4


LOCAL = {"one-report": _named, "sign-ds": _chosen, "class-means": _coded}


# Bugs. Each is planted where all protocols go through, so that it does not matter how a
# party is built.


def noise_times(factor: Fraction) -> Callable[[pytest.MonkeyPatch], None]:
    """Every holder draws noise of that much of its scale."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        honest = DiscreteGaussianNoise.plain

        def quiet(self: DiscreteGaussianNoise, n: int, rng: Any, device: Any) -> Any:
            part = max(1, min(64, int(2**20 / (self.scale * factor))))
            less = Fraction(round(self.scale * factor * part), part)
            return honest(DiscreteGaussianNoise(less), n, rng, device)

        patch.setattr(DiscreteGaussianNoise, "plain", quiet)

    return plant


def gradients_noised_by(factor: float) -> Callable[[pytest.MonkeyPatch], None]:
    """A clipped sum of gradients gets noise of that much of its scale."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        honest = critic.add_noise
        patch.setattr(
            critic,
            "add_noise",
            lambda sums, deviation, rng: honest(sums, factor * deviation, rng),
        )

    return plant


def _instead(patch: pytest.MonkeyPatch, function: Any, other: Any) -> None:
    """One function's code for another's, wherever it was imported to; it sees its own
    module's names.
    """
    patch.setattr(function, "__code__", other.__code__)


def pairs_count_twice(patch: pytest.MonkeyPatch) -> None:
    """Two levels that meet are counted from both sides, and paid for once."""

    def both(codes, sizes):  # type: ignore[no-untyped-def]
        rows = torch.from_numpy(one_hot(codes, sizes).astype(np.int64))  # type: ignore[name-defined] # noqa: F821
        found = rows.T @ rows
        return 2 * found - torch.diag(found.diagonal())

    _instead(patch, secure_counts.gram_matrix, both)


def rows_longer_by(factor: float) -> Callable[[pytest.MonkeyPatch], None]:
    """Vectors are pulled in to so many times the radius that was paid for."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        code = (
            "def longer(rows, radius, scale):\n"
            "    norms = np.sqrt(np.square(rows).sum(1))\n"
            f"    return np.rint(rows * ({factor} * scale / np.maximum(norms, "
            "radius))[:, None])\n"
        )
        made: dict[str, Any] = {}
        exec(code, {"np": np}, made)  # noqa: S102 # a function's code can be swapped for one without cells alone
        _instead(patch, secure_moments.bounded, made["longer"])

    return plant


def two_thirds_of_a_person_for_each_event(patch: pytest.MonkeyPatch) -> None:
    """Events weigh more than their share of the one that they are together."""

    def heavy(order, numbers, unit):  # type: ignore[no-untyped-def]
        return np.full(len(order), float(2 * unit // 3))

    _instead(patch, counts.parts, heavy)


def one_person_twice(patch: pytest.MonkeyPatch) -> None:
    """A holder reads the row of its first person two times."""
    for kind in {type(run.case().parties(True, 0)[TARGET]) for run in RUNS.values()}:
        patch.setattr(kind, "__init__", _doubled(kind.__init__))


def _doubled(honest: Callable[..., None]) -> Callable[..., None]:
    def doubled(self: Any, *told: Any, **more: Any) -> None:
        honest(
            self,
            *(
                _first_twice(one)
                if isinstance(one, Table | ArrayTable | Visits)
                else one
                for one in told
            ),
            **more,
        )

    return doubled


def _first_twice(rows: Any) -> Any:
    order = np.r_[0, np.arange(rows.rows)]
    if isinstance(rows, Table):
        return rows.take(order)
    if isinstance(rows, ArrayTable):
        everyone = np.arange(len(order))
        classes = None if rows.classes is None else rows.classes[order]
        return replace(
            rows,
            values=rows.values[order],
            ids=everyone,
            starts=np.r_[everyone, len(order)],
            classes=classes,
        )
    assert isinstance(rows, Visits)
    first = int(rows.starts[1])
    again = np.r_[np.arange(first), np.arange(len(rows.events))]
    times = None if rows.times is None else rows.times[again]
    return replace(
        rows,
        person_codes=rows.person_codes[order],
        events=rows.events[again],
        times=times,
        starts=np.r_[0, rows.starts + first],
        people=np.arange(len(order)),
    )


def masks_again(patch: pytest.MonkeyPatch) -> None:
    """One stream of a seed for all messages."""
    honest = ring.Ring.uniform
    patch.setattr(
        ring.Ring,
        "uniform",
        lambda self, seed, stream, *shape: honest(self, seed, 0, *shape),
    )


# Checks


@contextmanager
def planted(bug: Callable[[pytest.MonkeyPatch], None]) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        bug(patch)
        yield


def claim_is_kept(run: str, seed: int, trials: int, doubt: float) -> tuple[bool, str]:
    """No more is told apart than the ledger says."""
    found = audit_protocol(
        RUNS[run].case(), trials=trials, confidence=1 - doubt, seconds=3600, seed=seed
    )
    return (
        found.passed,
        f"claimed ε = {found.claimed:.3f}, observed ≥ {found.observed:.3f}, "
        f"{trials:,} trials",
    )


def claim_is_tight(run: str, seed: int, trials: int, doubt: float) -> tuple[bool, str]:
    """One person moves the release by nine tenths of what is paid for, or more, and by
    no more than that.
    """
    found = [tight_audit(run, epsilon).tight(seed) for epsilon in PRICES]
    good = all(not one.broken and one.lower >= 0.9 * one.claimed for one in found)
    return good, "; ".join(
        f"ε = {price:g}: {one}" for price, one in zip(PRICES, found, strict=True)
    )


def no_more_than_claimed(
    run: str, seed: int, trials: int, doubt: float
) -> tuple[bool, str]:
    """Not in all of ten runs is more told than was claimed: a bug must show in all."""
    broken = _accused(run, seed)
    return broken < MANY, f"{broken} of {MANY} runs tell more than was claimed"


def _accused(run: str, seed: int) -> int:
    return sum(
        tight_audit(run, PRICES[0]).tight(seed + 1000 * number).broken
        for number in range(MANY)
    )


def never_accused(run: str, seed: int, trials: int, doubt: float) -> tuple[bool, str]:
    """No close look at code as it is says that it is broken."""
    broken = _accused(run, seed)
    return not broken, f"accused in {broken} of {MANY} runs"


def local_is_tight(run: str, seed: int, trials: int, doubt: float) -> tuple[bool, str]:
    """Reports of two worst people are told apart by nine tenths of ε, or more, and by
    no more than ε.
    """
    good = True
    words = []
    for price in (1.0, 4.0):
        rng = SecureRng.from_seed(seed)
        likely = [
            LOCAL[run](price, person, rng).double().mean().item() for person in (0, 1)
        ]
        quantiles = (doubt / 4, 1 - doubt / 4)  # Clopper and Pearson
        hits = [round(share * REPORTS) for share in likely]
        low = beta.ppf(quantiles[0], hits[0], REPORTS - hits[0] + 1)
        high = beta.ppf(quantiles[1], hits[1] + 1, REPORTS - hits[1])
        found = math.log(low / high)
        good = good and 0.9 * price <= found <= price
        words.append(f"ε = {price:g}, observed ≥ {found:.3f}")
    return good, f"{'; '.join(words)}; {REPORTS:,} reports of each"


def masks_are_used_once(
    run: str, seed: int, trials: int, doubt: float
) -> tuple[bool, str]:
    """No stream of a seed hides two messages: it is drawn by those who share it
    alone.
    """
    honest = ring.keystream
    drawn = Counter[tuple[bytes, int]]()

    def noted(key: bytes, start: int, size: int) -> Any:
        drawn[key, start] += 1
        return honest(key, start, size)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ring, "keystream", noted)
        case = RUNS[run].case()
        case.train(RecordingParties(case.parties(True, seed)))
    most = max(drawn.values(), default=0)
    return 0 < most <= DRAWN, f"{len(drawn):,} streams, drawn {most} times at most"


def laws_are_found(run: str, seed: int, trials: int, doubt: float) -> tuple[bool, str]:
    """Exact tables are fitted exactly, and a law given a rule is nearer than counts of
    zero, whatever the seed.
    """
    off = [furthest_pair(ties, seed, components=64, steps=300) for ties in CASES]
    near, far = as_a_law_and_as_zeros(range(seed, seed + 8), components=64, steps=300)
    all_pairs, tied = (
        float(side.mean())
        for side in (near / far.mean(), near[:, 0] / far[:, 0].mean())
    )
    good = max(off[:-1]) < 4e-4 and off[-1] < 8e-3 and all_pairs < 0.92 and tied < 0.8
    return (
        good,
        f"pairs off by {', '.join(f'{one:.0e}' for one in off)}; {all_pairs:.2f} "
        f"and {tied:.2f} of zeros'",
    )


Check = Callable[[str, int, int, float], tuple[bool, str]]
Bug = Callable[[pytest.MonkeyPatch], None]
ALONE = (
    "gram",
    "gram, levels bought",
    "gram with a target",
    "moments",
    "visits",
    "two-aggregators",
)
# others' noise hides a part of it
BESIDE = ("gram over columns", "gram over rows", "tied", "shared-moments")
# over rows one party is audited alone, under no masks
MASKED = ("gram over columns", "tied")
PLANTED: dict[str, tuple[Check, Bug, tuple[str, ...]]] = {
    "two thirds of the noise": (claim_is_kept, noise_times(Fraction(2, 3)), ALONE),
    "a third of the noise": (claim_is_kept, noise_times(Fraction(1, 3)), BESIDE),
    "pairs that count twice": (claim_is_kept, pairs_count_twice, ("gram",)),
    "rows half as long again": (claim_is_kept, rows_longer_by(1.5), ("moments",)),
    "events of two thirds of a person": (
        claim_is_kept,
        two_thirds_of_a_person_for_each_event,
        ("visits",),
    ),
    "one person twice": (
        claim_is_kept,
        one_person_twice,
        ("gram", "gram, levels bought", "moments", "visits"),
    ),
    "masks used again": (masks_are_used_once, masks_again, MASKED),
    "a twentieth less noise": (
        no_more_than_claimed,
        noise_times(Fraction(19, 20)),
        tuple(run for run in TIGHT if run != "verti-gan"),
    ),
    "a twentieth less noise on gradients": (
        no_more_than_claimed,
        gradients_noised_by(0.95),
        ("verti-gan",),
    ),
    "rows a tenth longer": (no_more_than_claimed, rows_longer_by(1.1), ("moments",)),
    "one person twice, looked at closely": (
        no_more_than_claimed,
        one_person_twice,
        ("gram", "moments", "visits"),
    ),
}


@dataclass(frozen=True)
class Job:
    """One check of one run, as it is or with a bug."""

    run: str
    bug: str | None
    check: Check
    seed: int

    @property
    def title(self) -> str:
        return self.run if self.bug is None else f"{self.run}, {self.bug}"

    @property
    def must(self) -> str:
        return (
            self.check.__name__.replace("_", " ") if self.bug is None else "it is seen"
        )

    def __call__(
        self, trials: int = TRIALS, looks: tuple[int, ...] = LOOKS
    ) -> tuple[bool, str, float]:
        """Whether it went as it must, what was found, and the seconds of processor that
        it took.
        """
        torch.set_num_threads(1)
        begun = time.process_time()
        words = ""
        doubt = FALSE_ALARM / len(RUNS)
        if self.bug is None:
            good, words = self.check(self.run, self.seed, trials, doubt)
            return good, words, time.process_time() - begun
        for number, many in enumerate(looks):
            with planted(PLANTED[self.bug][1]):
                good, words = self.check(self.run, self.seed + number, many, doubt)
            if not good:
                break
        return not good, words, time.process_time() - begun


def jobs(seed: int, only: str = "", clean: bool = False) -> list[Job]:
    """All checks, each with seeds of its own; those of code as it is come first."""
    found: list[tuple[str, str | None, Check]] = [
        (run, None, claim_is_kept) for run in RUNS
    ]
    found += [(run, None, masks_are_used_once) for run in MASKED]
    found += [(run, None, claim_is_tight) for run in TIGHT]
    found += [(run, None, local_is_tight) for run in LOCAL]
    found += [("a law given rules", None, laws_are_found)]
    found += [
        (run, bug, check) for bug, (check, _, names) in PLANTED.items() for run in names
    ]
    found += [
        (run, None, never_accused) for run in TIGHT for _ in range(MANY if clean else 0)
    ]
    each = [Job(*one, seed + len(LOOKS) * number) for number, one in enumerate(found)]
    return [job for job in each if only in job.title]


def _call(job: Job) -> tuple[bool, str, float]:
    return job()


def main() -> int:
    told = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    told.add_argument("--seed", type=int)
    told.add_argument("--only", default="")
    told.add_argument("--jobs", type=int, default=2)
    told.add_argument("--clean", action="store_true")
    options = told.parse_args()
    seed = secrets.randbelow(1 << 32) if options.seed is None else options.seed
    asked = jobs(seed, options.only, options.clean)
    begun = time.monotonic()
    wrong = 0
    sys.stdout.write(f"seed {seed}\n")
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
        for job, (good, words, seconds) in zip(
            asked, pool.map(_call, asked), strict=True
        ):
            wrong += not good
            verdict = job.must if good else f"WRONG, this must hold: {job.must}"
            sys.stdout.write(f"{job.title}: {verdict} ({words}; {seconds:.0f} s)\n")
            sys.stdout.flush()
    took = f"{len(asked)} checks in {time.monotonic() - begun:.0f} s"
    sys.stdout.write(f"{took}, {wrong} wrong. The same again: SEED={seed}\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
