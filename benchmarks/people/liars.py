"""People who lie: a share of them sends something else than their report, and the fit
may expect it.

- random: a report about a row that is made up, every level alike.
- one cell: all liars name the first cell of the set that they are asked about, whatever
  their row, and no mechanism stands between: the strongest vote that one report can
  give.

`expected` is the share of liars that the fit was told of (`liars`, 0: none). `voted` is
the share of synthetic rows that have the first level in every one of the first three
columns, `real` that of real rows: what a vote for one cell is after.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from people_figures import figures
from people_tables import load

from common.grid import Grid, by_text
from understudy.data.encoding.codec import Codec
from understudy.data.table import read_table
from understudy.generators.generator import Generator
from understudy.ground.pack import Value
from understudy.privacy.accounts.budget import Budget
from understudy.privacy.accounts.ledger import Ledger
from understudy.privacy.local.naming import SubsetSelection
from understudy.privacy.noise import SecureRng
from understudy.protocols.one_report import protocol
from understudy.protocols.one_report.party import (
    MarginalsRound,
    OneReportParty,
    lengths,
    randomized,
)
from understudy.runtime.local import LocalParties

KINDS = ("random", "one cell")
SHARES = (0.0, 0.01, 0.05, 0.2)
KEY = ("dataset", "epsilon_total", "kind", "share", "expected", "seed")
GRID = Grid(
    fields=[*KEY, "people", "avd2", "avd3", "auc", "f1", "brier", "voted", "real"],
    key=KEY,
    order=by_text(*KEY),
)

Job = dict[str, Any]


class LyingParty(OneReportParty):
    """A host some of whose people lie."""

    def lie(self, kind: str, share: float, seed: int) -> "LyingParty":
        self.kind = kind
        self.share = share
        self.seed = seed
        return self

    def reports(self, ask: MarginalsRound) -> Value:
        sent = super().reports(ask)
        sets = self._sets(ask)
        assert isinstance(sent, torch.Tensor)
        rng = np.random.default_rng((self.seed, ask.round))
        liars = torch.from_numpy(rng.random(len(ask.people)) < self.share)
        if self.kind == "random":
            rows = torch.from_numpy(
                rng.integers(0, self.levels, (len(liars), len(self.levels)))
            )
            said = randomized(rows, ask.which, sets, self.epsilon, self.rng)
        else:
            said = sent.clone()
        mechanisms = [
            SubsetSelection(cells=one.cells, epsilon=self.epsilon) for one in sets
        ]
        long = lengths(ask.which, mechanisms)
        ends = long.cumsum(0)
        if self.kind == "one cell":
            for number in np.unique(ask.which).tolist():
                own = ask.which == number
                mechanism = mechanisms[number]
                vote = mechanism.encode(torch.arange(mechanism.size)[None])
                said[
                    (ends[own, None] - mechanism.bytes) + torch.arange(mechanism.bytes)
                ] = vote
        return torch.where(liars.repeat_interleave(long), said, sent)


def measure(job: Job) -> dict[str, Any]:
    """One cell of the grid."""
    data = load(job["dataset"], job["data"])
    people = data.people(2)
    budget = Budget(50.0, 0.0)
    schema = data.schema
    table = read_table(people, _with_person(schema), name="phones", one_row_each=False)
    party = LyingParty(
        "phones",
        table,
        Ledger.rehearsal(holder="phones", budget=budget),
        run="lies",
        budget=budget,
        rng=SecureRng.from_seed(job["seed"]),
    ).lie(job["kind"], job["share"], job["seed"])
    config = protocol.Config(
        epsilon_total=job["epsilon_total"],
        target=data.target,
        liars=job["expected"],
        seed=job["seed"],
        device=job["device"],
    )
    outcome = protocol.train(
        config, LocalParties({"phones": party}), {"phones": table.schema}
    )
    rows = Generator.from_parts(outcome.trained).sample(
        len(data.train), seed=job["seed"]
    )
    codec = Codec(schema)
    shares = [
        float((codec.codes(part)[:, :3] == 0).all(1).mean())
        for part in (rows, data.train)
    ]
    facts = {
        "people": people["person"].nunique(),
        "voted": round(shares[0], 4),
        "real": round(shares[1], 4),
    }
    return {key: job[key] for key in KEY} | facts | figures(data, rows, ("boosting",))


def _with_person(schema: Any) -> Any:
    from dataclasses import replace

    return replace(schema, person="person")


def jobs(args: Any) -> Iterator[Job]:
    """Honest people once; then every kind and share, with a fit that expects nobody and
    one that expects as many.
    """
    for seed in range(args.seeds):
        for dataset in args.only:
            for epsilon in args.epsilons:
                for kind in KINDS:
                    for share in SHARES:
                        if share == 0 and kind != KINDS[0]:
                            continue
                        for expected in sorted({0.0, share} if share else {0.0, 0.05}):
                            yield {
                                "dataset": dataset,
                                "epsilon_total": epsilon,
                                "kind": kind,
                                "share": share,
                                "expected": expected,
                                "seed": seed,
                                "data": Path(args.data) if args.data else None,
                                "device": args.device,
                            }
