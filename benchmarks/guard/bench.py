"""What got slower since it was last looked at: ratios of hot paths, and counts of what
never varies.

    make guard                 # measures again beside guard.csv: says what got worse,
                               and then ends with 1
    python benchmarks/guard/bench.py --counts    # what never varies alone, in seconds,
                                                 as every check does
    make guard WRITE=1         # writes guard.csv anew for this kind of machine; other
                               kinds' rows stay

A ratio is of our processor time over that of something plain which does the same work,
or as much: both take turns in one process, one thread each, and the least times count,
so that a busy machine blurs little. Another kind of processor does matter, so each kind
(`chip`) has rows of its own. One that looks worse than the committed one by more than a
fifth is measured twice more, and the best stands. Counts are one row for all kinds, and
compared exactly: more is worse, less is said and welcome. All of it takes three minutes
at most.
"""

import argparse
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from datetime import date
from functools import cache, partial
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any
from unittest import mock

os.environ["OMP_NUM_THREADS"] = "1"  # before torch
sys.path.append(str(Path(__file__).parents[1]))

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import torch
from dp_accounting import dp_event
from dp_accounting.pld import PLDAccountant
from nacl.bindings import crypto_scalarmult, crypto_scalarmult_base

import understudy as us
from cohort.bench import LR_, Seeded, loop
from common.aligned import align
from common.options import options
from common.rows import Row, read, write
from critic.bench import steps
from guard.waits import Waits
from understudy.data.reading import files
from understudy.data.samples import toy
from understudy.models.cohort.training import ClassifierTraining
from understudy.models.tables.fit_gram import fit_gram
from understudy.privacy.accounts.accounting import calibrate
from understudy.privacy.secure.counts import gram_matrix
from understudy.privacy.secure.moments import Crowd, cell_moments
from understudy.protocols.papers.verti_gan import protocol as verti_gan
from understudy.runtime.local import LocalParties
from verti_gan.bench import WIDTHS, holding

HERE = Path(__file__).parent
FIELDS = ("figure", "kind", "chip", "value", "machine", "date")
FIFTH = 1.2
SIZES = (2, 3, 5, 8, 12) * 3
Work = Callable[[], object]


def race(ours: Work, plain: Work, turns: int = 7) -> float:
    """Our least processor time over that of `plain`; they take turns, and the first
    warms up.
    """
    least = [float("inf")] * 2
    for turn in range(turns + 1):
        for side, work in enumerate((ours, plain)):
            begun = time.process_time()
            work()
            if turn:
                least[side] = min(least[side], time.process_time() - begun)
    return least[0] / least[1]


def critic_step() -> float:
    both = steps(137)
    return race(both["private"], both["plain"], 15)


def cohort() -> float:
    draw = torch.Generator().manual_seed(0)
    x = torch.rand(50, 10, 256, generator=draw)
    y = torch.randint(10, (50, 10), generator=draw)
    params = LR_.init(Seeded())
    train = ClassifierTraining(LR_, epochs=10, lr=0.001)
    return race(lambda: train(params, x, y), lambda: loop(LR_, params, x, y, "sgd"), 5)


def codes(rows: int) -> Any:
    draw = np.random.default_rng(0)
    return np.stack([draw.integers(size, size=rows) for size in SIZES], 1)


def gram_count() -> float:
    held = codes(100_000)

    def plain() -> None:
        for (i, a), (j, b) in combinations(enumerate(SIZES), 2):
            np.bincount(held[:, i] * b + held[:, j], minlength=a * b)

    return race(lambda: gram_matrix(held, SIZES), plain)


def plain_steps(sizes: Sequence[int], components: int, steps: int) -> Work:
    """So many steps of Adam on a mixture's logits, whose two-way tables are to be those
    of an even law: by autograd.
    """
    even = torch.cat([torch.full((size,), 1 / size) for size in sizes])

    def work() -> None:
        draw = torch.Generator().manual_seed(0)
        logits = torch.randn(components, sum(sizes), generator=draw).requires_grad_()
        adam = torch.optim.Adam([logits], lr=0.2)
        for _ in range(steps):
            odds = torch.cat(
                [part.softmax(1) for part in logits.split(list(sizes), 1)], 1
            )
            pairs = odds.T @ odds / components
            adam.zero_grad()
            (pairs - torch.outer(even, even)).square().sum().backward()
            adam.step()

    return work


def gram_fit() -> float:
    """60 steps, over 60 steps by autograd without all that is ours: priors, empty
    cells, a look at what is left.
    """
    noisy = gram_matrix(codes(20_000), SIZES).double()
    plain = plain_steps(SIZES, 512, 60)
    return race(
        lambda: fit_gram(noisy, SIZES, noise=10.0, people=20_000, steps=60, seed=0),
        plain,
        3,
    )


def one_line() -> float:
    """`us.synthesize` of twelve numbers without bounds, in 60 steps, over 60 steps of
    as wide a mixture.
    """
    draw = np.random.default_rng(0)
    laws = {f"law{n}": np.round(draw.lognormal(3, 1, 3_000), n % 3) for n in range(6)}
    frame = pd.DataFrame(
        laws | {f"code{n}": draw.integers(0, 9 << n, 3_000) for n in range(6)}
    )
    plain = plain_steps([10, 15] * 6, 512, 60)

    def ours() -> None:
        with tempfile.TemporaryDirectory() as home:
            us.synthesize(
                frame,
                epsilon=1,
                names_and_kinds_are_public=True,
                ledgers=home,
                steps=60,
                seed=0,
            )

    return race(ours, plain, 2)


def moments() -> float:
    rows = np.random.default_rng(0).integers(-1000, 1000, (20_000, 64)).astype(float)
    cells = np.arange(20_000) % 10
    crowd = Crowd.from_starts(np.arange(20_001))
    return race(lambda: cell_moments(rows, cells, 10, crowd), lambda: rows.T @ rows)


def alignment() -> float:
    """Over one exponentiation by libsodium for each id that is masked."""
    point = crypto_scalarmult_base(os.urandom(32))
    key = os.urandom(32)

    def plain() -> None:
        # by its own holder and by the other one, at two holders
        for _ in range(4 * 1000):
            crypto_scalarmult(key, point)

    return race(lambda: align({"a": range(1000), "b": range(500, 1500)}), plain, 3)


def price() -> float:
    """The noise of a VertiGAN, over one price of it by Google's accountant. Each turn
    asks anew: answers are kept.
    """
    asked: Iterator[float] = iter(8 + n / 1000 for n in range(100))

    def event(sigma: float) -> Any:
        return dp_event.PoissonSampledDpEvent(0.01, dp_event.GaussianDpEvent(sigma))

    def ours() -> None:
        calibrate(lambda sigma: {event(sigma): 15_000}, epsilon=next(asked), delta=1e-6)

    return race(
        ours, lambda: PLDAccountant().compose(event(1.0), 15_000).get_epsilon(1e-6), 3
    )


def run(program: str, **more: Any) -> Any:
    return subprocess.run([sys.executable, "-c", program], check=True, **more)


def importing() -> float:
    """`us.synthesize`, over the libraries that it stands on."""

    def seconds(program: str) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        run(program)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    ours = "import understudy; understudy.synthesize"
    plain = "import torch, pandas, pyarrow, dp_accounting"
    turns = [(seconds(ours), seconds(plain)) for _ in range(3)]
    return min(a for a, _ in turns) / min(b for _, b in turns)


def ask() -> float:
    """An empty ask of two parties over the loopback, over a bare echo; journals in
    memory where there is a tmpfs.
    """
    with tempfile.TemporaryDirectory() as home:
        out = Path(home) / "asked.csv"
        command = [
            sys.executable,
            str(HERE.parent / "network" / "bench.py"),
            "--only",
            "2x0",
            "--out",
            str(out),
        ]
        subprocess.run(
            command,
            check=True,
            env=os.environ | {"QUICK": "1"},
            stdout=subprocess.DEVNULL,
        )
        last = read(out)[-1]
    return float(last["ask_ms"]) / float(last["raw_grpc_ms"])


@cache
def small_run() -> Any:
    """A gram run of two holders of different columns of the same people."""
    frame, schema = toy(rows=300, seed=1)
    parts = {"a": list(schema.names[::2]), "b": list(schema.names[1::2])}
    tables = {name: frame[["id", *part]] for name, part in parts.items()}
    schemas = {name: schema.select(part) for name, part in parts.items()}
    federation = us.Federation.rehearsal(
        tables, schemas, budget=us.Budget(2.0, 1e-6), seed=1
    )
    return us.train("gram", federation, steps=20, components=32, device="cpu")


def sampling() -> float:
    """Synthetic rows, over as many cells drawn by numpy from one set of odds a
    column.
    """
    generator = small_run().generator
    columns = len(generator.schema.names)
    draw = np.random.default_rng(0)
    odds = np.full(10, 0.1)

    def plain() -> None:
        for _ in range(columns):
            draw.choice(10, 20_000, p=odds)

    return race(lambda: generator.sample(20_000, seed=0), plain)


def sent(what: Callable[[Any], int]) -> int:
    return sum(what(line) for line in small_run().transcript.lines.values())


def passes() -> int:
    """How often a table that is longer than memory is read from its beginning to its
    end, in a whole run.
    """
    frame, schema = toy(rows=400, seed=1)
    rows = 0
    own = pq.ParquetFile.iter_batches

    def counted(file: Any, *args: Any, **more: Any) -> Iterator[Any]:
        nonlocal rows
        for batch in own(file, *args, **more):
            rows += len(batch)
            yield batch

    seen = mock.patch.object(pq.ParquetFile, "iter_batches", counted)
    with (
        tempfile.TemporaryDirectory() as home,
        mock.patch.object(files, "LONG", 1),
        seen,
    ):
        path = Path(home) / "rows.parquet"
        frame.to_parquet(path)
        us.synthesize(
            path,
            epsilon=2.0,
            schema=schema,
            ledgers=Path(home) / "ledgers",
            steps=5,
            components=8,
            device="cpu",
        )
    return rows // len(frame)


def imported(program: str) -> int:
    """Our own files in a fresh interpreter."""
    told = (
        "\nimport sys\nprint(sum(name.split('.')[0] == 'understudy' for name in "
        "sys.modules))"
    )
    return int(run(program + told, capture_output=True, text=True).stdout)


# VertiGAN


def rounds(
    device: str,
    widths: Sequence[int],
    people: int,
    watch: Callable[[int, Any], None],
    many: int,
) -> None:
    """So many rounds; `watch` is told each that is done, and the parties."""
    held = {
        f"p{n}": holding(width, people, f"p{n}_", n) for n, width in enumerate(widths)
    }
    tables, schemas = ({name: pair[n] for name, pair in held.items()} for n in (0, 1))
    federation = us.Federation.rehearsal(tables, schemas, budget=us.Budget(8.0, 1e-6))
    config = verti_gan.Config(
        rounds=many,
        device=device,
        **({"batch": 8, "critic_steps": 2} if people < 1000 else {}),
    )
    parties = LocalParties(federation.parties("verti-gan", run="guard"))
    verti_gan.train(
        config,
        parties,
        federation.schemas,
        watch=lambda done: watch(done.done, parties.parties),
    )


def waits() -> int:
    """In the second round, on a pretended device."""
    marks: list[int] = []
    with Waits() as seen:
        rounds("lazy", (6, 9), 40, lambda done, _: marks.append(len(seen.seen)), 2)
    return marks[1] - marks[0]


def waits_on_gpu() -> int | None:
    """In twenty rounds, by PyTorch's own word."""
    if not torch.cuda.is_available():
        return None

    def watch(done: int, _: Any) -> None:
        if done in (5, 25):
            torch.cuda.set_sync_debug_mode("warn" if done == 5 else "default")

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        rounds("cuda", WIDTHS["census"], 20_000, watch, 30)
    return sum("called a synchronizing" in str(one.message) for one in said)


def gpu_round() -> float | None:
    """A round at HAR's widths on the wall, over its two captured graphs alone."""
    if not torch.cuda.is_available():
        return None
    marks: list[float] = []
    alone: list[float] = []

    def watch(done: int, parties: Any) -> None:
        if done % 100 == 0:
            torch.cuda.synchronize()
            marks.append(time.perf_counter())
        if done == 400:
            for _ in range(100):
                for party in parties.values():
                    party.critic_round._graph.graph.replay()
            torch.cuda.synchronize()
            alone.append(time.perf_counter() - marks[-1])

    rounds("cuda", WIDTHS["har"], 20_000, watch, 400)
    return statistics.median(b - a for a, b in pairwise(marks)) / alone[0]


RATIOS: dict[str, Callable[[], float | None]] = {
    "private critic step / plain step": critic_step,
    "clients as a cohort / one by one": cohort,
    "two-way tables / bincount of each pair": gram_count,
    "gram's fit / plain steps": gram_fit,
    "one line / plain steps": one_line,
    "moments by cell / one product": moments,
    "sampling / numpy's choice": sampling,
    "alignment / an exponentiation an id": alignment,
    "noise of a run / one price by PLDAccountant": price,
    "import of synthesize / of its libraries": importing,
    "an ask over loopback / a bare echo": ask,
    "VertiGAN round on a GPU / its graphs": gpu_round,
}
COUNTS: dict[str, Callable[[], int | None]] = {
    "waits in a VertiGAN round": waits,
    "waits in twenty VertiGAN rounds on a GPU": waits_on_gpu,
    "passes of gram over streamed rows": passes,
    "messages of a small gram run": partial(sent, lambda line: line.count),
    "bytes of a small gram run": partial(
        sent, lambda line: line.up_bytes + line.down_bytes
    ),
    "files imported by synthesize": partial(
        imported, "import understudy; understudy.synthesize"
    ),
    "files imported by sign-ds": partial(
        imported, "import understudy.protocols.papers.sign_ds.protocol"
    ),
}


def judged(
    name: str, kind: str, before: float | None, now: float | None
) -> tuple[bool, str]:
    """Whether it got worse, and what is to be said of it."""
    if now is None:
        return False, f"{name}: cannot be measured here (no GPU)"
    form = ",.0f" if kind == "count" else ".3g"
    if before is None:
        return False, f"{name}: {now:{form}}, new"
    worse = now > before * (1 if kind == "count" else FIFTH)
    less = kind == "count" and now < before
    return (
        worse,
        f"{name}: {now:{form}}, was "
        f"{before:{form}}{': WORSE' * worse}{': better, write it down' * less}",
    )


def measured(name: str, before: float | None) -> float | None:
    """A count, or the best of a ratio that looks worse."""
    if name in COUNTS:
        return COUNTS[name]()
    found = RATIOS[name]()
    for _ in range(2):
        if found is not None and judged(name, "ratio", before, found)[0]:
            found = min(found, RATIOS[name]() or found)
    return found


def chip(name: str) -> str:
    """The kind of processor that a ratio is of."""
    return (
        torch.cuda.get_device_name()
        if "on a GPU" in name and torch.cuda.is_available()
        else platform.machine()
    )


def parser() -> argparse.ArgumentParser:
    parser = options(__doc__, out=HERE / "guard.csv")
    parser.add_argument(
        "--write", action="store_true", help="replace the file's figures by these"
    )
    parser.add_argument(
        "--counts", action="store_true", help="what is counted alone, and never timed"
    )
    parser.add_argument("--only", default="", help="figures with this in their name")
    return parser


def main() -> None:
    args = parser().parse_args()
    # of so few people a run says that it is of little use
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    rows: dict[tuple[str, str], Row] = {
        (row["figure"], row["chip"]): row for row in read(args.out)
    }
    gpu = torch.cuda.is_available()
    machine = {
        "machine": torch.cuda.get_device_name()
        if gpu
        else f"{platform.machine()}, {os.cpu_count()} cores",
        "date": str(date.today()),
    }
    machine["machine"] += f", torch {torch.__version__}"
    worse = []
    figures = (*COUNTS,) if args.counts else (*RATIOS, *COUNTS)
    for name in [one for one in figures if args.only in one]:
        kind = "count" if name in COUNTS else "ratio"
        key = (name, "" if kind == "count" else chip(name))
        before = float(rows[key]["value"]) if key in rows else None
        begun = time.perf_counter()
        now = measured(name, before)
        bad, text = judged(name, kind, before, now)
        print(f"{text}  [{time.perf_counter() - begun:.0f} s]", flush=True)
        worse += [name] * bad
        if args.write and now is not None:
            value = f"{now:.4g}" if kind == "ratio" else now
            rows[key] = {
                "figure": name,
                "kind": kind,
                "chip": key[1],
                "value": value,
            } | machine
    if args.write:
        order = [*RATIOS, *COUNTS]
        kept = sorted(
            (key for key in rows if key[0] in order),
            key=lambda key: (order.index(key[0]), key[1]),
        )
        write(args.out, [rows[key] for key in kept], FIELDS)
    elif worse:
        sys.exit(f"{len(worse)} got worse: {'; '.join(worse)}")


if __name__ == "__main__":
    main()
