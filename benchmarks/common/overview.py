"""The table of benchmarks/README.md, from the CSV files of the folders: `make tables
NAME=.`.
"""

from pathlib import Path
from typing import Any

import pandas as pd

from common import figures
from common.markdown import table
from common.rows import read

HERE = Path(__file__).parents[1]


def found(folder: str, file: str = "ours.csv", **key: object) -> "pd.Series[Any]":
    return figures.found(HERE / folder / file, **key)


def bare(*values: float, digits: int = 3) -> str:
    return " / ".join(figures.bare(value, digits) for value in values)


def critic() -> tuple[str, str]:
    arm, xeon = (
        found("critic", "machines.csv", width=562, threads=threads, clock=clock)
        for threads, clock in ((1, "cpu"), (2, "wall"))
    )
    ours = [f"{row.private_ms / row.plain_ms:.2f}×" for row in (arm, xeon)]
    each = [f"{row.vmap_ms / row.private_ms:.0f}×" for row in (arm, xeon)]
    return (
        "a private critic step beside a plain one, 562 → 281, batch 1000",
        f"{ours[0]} on an ARM core (Neoverse-N1), {ours[1]} on two Xeon cores; "
        f"per-sample gradients cost {each[0]} and {each[1]} ours",
    )


def verti_gan() -> tuple[str, str]:
    took = [
        found("verti_gan", dataset=name, device="cuda", start="warm")
        for name in ("census", "dilbert")
    ]
    ours, paper = (
        "; ".join(f"{row[name]:,.0f} s" for row in took)
        for name in ("seconds_1500", "paper_seconds")
    )
    return (
        "a whole VertiGAN run, 1500 rounds, widths of Census; of Dilbert",
        f"{ours} on an H200, in a process that had one run before (the paper: "
        f"{paper} on an RTX 6000)",
    )


def joint(dataset: str, method: str, file: str = "ours.csv") -> "pd.Series[Any]":
    return found(
        "joint",
        file,
        dataset=dataset,
        method=method,
        epsilon=1,
        partition="columns",
        holders=2,
        seed=0,
    )


def adult() -> tuple[str, str]:
    def pair(dataset: str, method: str) -> str:
        row = joint(dataset, method)
        return f"{bare(row.avd2)} / {bare(row.tstr_boosting_auc, digits=2)}"

    fine = ", ".join(
        f"{name} {pair('adult_pgm', method)}"
        for name, method in (("`gram`", "Gram"), ("MST", "MST"), ("AIM", "AIM"))
    )
    return (
        "Adult over two holders at ε = 1, 2-way AVD / AUC of a model trained on "
        "synthetic rows, one seed",
        f"`gram` {pair('adult', 'Gram')}, although no two holders share a row; "
        f"central MST {pair('adult', 'MST')} (in its finer coding {fine})",
    )


def har() -> tuple[str, str]:
    gram, target, mst, aim = (
        bare(joint("har", method).tstr_boosting_auc, digits=2)
        for method in ("Gram", "Gram+target", "MST", "AIM")
    )
    whole = bare(joint("har", "AIM", "aim.csv").tstr_boosting_auc, digits=2)
    return (
        "HAR, 562 columns of 5,882 people, two holders at ε = 1, AUC, one seed",
        f"`gram` {gram}, with `target` named {target}; central MST {mst}, central "
        f"AIM {aim} to {whole}",
    )


def vertical() -> tuple[str, str]:
    def pair(method: str, epsilon: float | None = 8.0) -> str:
        row = found(
            "vertical", study="main", dataset="adult", method=method, epsilon=epsilon
        )
        return bare(row.avd2_within, row.avd2_cross)

    return (
        "Adult at ε = 8, 2-way AVD within / across two holders, two seeds "
        f"(independent columns: {pair('independent', None)})",
        f"`gram` {pair('Gram')} in seconds; `dplt` {pair('DPLT')}; `verti-gan` "
        f"{pair('VertiGAN')}: [why](vertical/README.md)",
    )


def secure_product() -> tuple[str, str]:
    row = found("secure_product", people=100_000, bits=32)
    return (
        "a secure product, 10⁵ people × 150 + 150 columns",
        f"{row.seconds:.1f} s, exact, {row.sent_mb_each_way:.0f} MB each way",
    )


def scale() -> tuple[str, str]:
    row = found("scale", what="gram", source="parquet", rows=10_000_000)
    return (
        "a Parquet file of 10⁷ rows × 20 columns, checked and counted by `gram` "
        "in batches",
        f"{row.open_s + row.count_s:,.0f} s of an ARM core, {row.peak_mb:,.0f} MB "
        "at most",
    )


def alignment() -> tuple[str, str]:
    row = found("alignment", what="all_cores", ids=100_000)
    return (
        "alignment of two holders with 10⁵ ids each",
        f"{row.cpu_s:.0f} s of processor time, half of it at each holder",
    )


def union() -> tuple[str, str]:
    rows = figures.where(HERE / "union" / "ours.csv", presence="random")
    cells = rows.groupby(["dataset", "shares", "target"]).mean(numeric_only=True)
    both, own = (
        figures.span(cells[f"union_{name}"] / cells[f"intersection_{name}"], digits=2)
        for name in ("both_avd2", "own_avd2")
    )
    return (
        "a union, of which nobody learns who is shared, by `gram` at ε = 1 beside the "
        "intersection, 2-way AVD: of people at both holders; of each holder's own",
        f"{both} times the intersection's; {own} times",
    )


def cohort() -> tuple[str, str]:
    logistic, mlp = (
        found("cohort", model=model, clients=250, optimizer="sgd")
        for model in ("logistic_regression", "mlp")
    )
    times = [f"{row.loop_ms / row.cohort_ms:.0f}×" for row in (logistic, mlp)]
    return (
        "250 clients trained as one batch instead of one by one",
        f"{times[0]} (logistic regression), {times[1]} (MLP)",
    )


def sign_ds() -> tuple[str, str]:
    def accuracy(method: str) -> float:
        return float(
            found("sign_ds", dataset="usps", method=method, epsilon_round=4).accuracy
        )

    plain = found(
        "sign_ds", "gamma.csv", dataset="usps", method="non-private", global_rate=30
    ).accuracy
    best = max(
        accuracy(method)
        for method in ("Duchi", "PM", "HM", "PM-SUB", "FedSel (0.1)", "FedSel (0.5)")
    )
    return (
        "SignDS-FL on USPS at ε = 4 per report, three seeds",
        f"{accuracy('SignDS (h=1)'):.3f} (no privacy: {plain:.3f}; best mean "
        f"estimator: {best:.3f})",
    )


def fed_stdg() -> tuple[str, str]:
    gpu, core = read(HERE / "fed_stdg" / "speed.csv")
    return (
        "local training of 50 people's series (RWAE, ten epochs) as one batch",
        f"{float(gpu['cohort_ms']):.2f} ms a person on an H200, {gpu['ratio']}× one by "
        f"one; {core['ratio']}× on one ARM core",
    )


def network() -> tuple[str, str]:
    def times(payload: float, journal: str) -> str:
        row = found("network", parties=2, payload_mb=payload, journal=journal)
        return f"{row.ask_ms / row.raw_grpc_ms:.1f}×"

    return (
        "an ask to two holders over gRPC, beside a bare echo under the same TLS",
        f"{times(0, 'memory')} empty and {times(10, 'memory')} at 10 MB; "
        f"{times(0, 'disk')} and {times(10, 'disk')} with every answer synced to disk",
    )


def population() -> tuple[str, str]:
    rows = [
        found("cohort", "population.csv", people=people, clients_per_round=250)
        for people in (10**4, 10**5, 10**6)
    ]
    return (
        "a round of 250 people out of 10⁴, 10⁵, 10⁶",
        f"{', '.join(f'{row.round_ms:.0f}' for row in rows)} ms; a million people "
        f"in {rows[-1].peak_mb / 1000:.1f} GB",
    )


def evaluate() -> tuple[str, str]:
    return (
        "all utility figures of a 10⁵ × 100 table",
        f"{found('evaluate', figure='all').seconds:.0f} s on two cores",
    )


def papers() -> tuple[str, str]:
    return (
        "DP-Fed-WAE, FedSTDG, SGDE, DP-GenFL beside their papers",
        "what comes out, also where it contradicts them",
    )


def attacks() -> tuple[str, str]:
    rows = figures.where(HERE / "attacks" / "ours.csv", copied=0.0)
    few, more = (
        found("attacks", case="health", copied=share) for share in (0.01, 0.05)
    )
    return (
        "pages where nothing can leak on which any attack is said to succeed; "
        "generators that copy 1 %, 5 % of "
        "their rows, found (1,700 people train, as many do not)",
        f"{rows.alarms.sum()} of {rows.pages.sum()}; {few.alarms:.0f}, "
        f"{more.alarms:.0f} of {few.pages:.0f}",
    )


def answers() -> tuple[str, str]:
    drawn, table, filled = (
        found("answers", question=name) for name in ("sample", "table", "complete")
    )
    return (
        "10⁵ rows that meet a condition, from a mixture of 512 components with Adult's "
        "columns; a table of three columns; 10⁴ rows completed",
        f"{drawn.cpu_seconds:.1f} s; {1000 * table.cpu_seconds:.0f} ms; "
        f"{filled.cpu_seconds:.1f} s of an x86 core",
    )


def numbers() -> tuple[str, str]:
    kept = figures.where(HERE / "numbers" / "ours.csv", people=20_000, epsilon=1)
    apart = kept[kept["dataset"].isin(("bank_full", "diabetes130"))]
    ks = {
        method: bare(
            apart[(apart["method"] == method) & (apart["widened"] == by)]["ks"].mean()
        )
        for method, by in (("bought", 10), ("equal", 10), ("hand", 1))
    }
    return (
        "columns of numbers, 20,000 people at ε = 1, by a drafted schema whose bounds "
        "are ten times too wide: mean KS on two tables",
        f"levels that `gram` buys {ks['bought']}; equal bins {ks['equal']}; bins made "
        f"by hand, bounds not widened, {ks['hand']}",
    )


def strangers() -> tuple[str, str]:
    every = figures.where(HERE / "strangers" / "ours.csv", epsilon=1)
    method = "latest" if "latest" in set(every["method"]) else "now"
    last = every[(every["method"] == method) & (every["kind"] != "line")]
    many, some = (
        last[last["people"].between(*ends)]["ks"].dropna()
        for ends in ((20_000, 10**9), (5_000, 19_999))
    )
    good = last[last["mark"] == "good"]
    wrong = int((good[["ks", "tv"]].max(axis=1) > 0.1).sum())
    return (
        f"{last['dataset'].nunique()} tables as strangers bring them, nothing "
        "declared, ε = 1: worst KS of a number with 20,000 people or more; KS up to "
        ".08 with 5,000; marks “good” of columns that are off by more than .1",
        f"{bare(many.max())}; {int((some <= 0.08).sum())} of {len(some)} numbers; "
        f"{wrong} of {len(good)}",
    )


def aggregators() -> tuple[str, str]:
    row = found("aggregators", people=50_000)
    return (
        "two aggregators, 50,000 people with Adult's columns: one person's "
        "upload; the check and the sums at each",
        f"{row.upload_bytes / 1000:.1f} kB; {row.first_s:.0f} and "
        f"{row.second_s:.0f} s of an x86 core",
    )


def images() -> tuple[str, str]:
    rows = figures.where(
        HERE / "images" / "ours.csv",
        method="moments",
        split="one holder",
        classifier="cnn",
    )

    def at(dataset: str, epsilon: float) -> str:
        return bare(
            rows[(rows["dataset"] == dataset) & (rows["epsilon"] == epsilon)][
                "accuracy"
            ].mean()
        )

    return (
        "a CNN that saw drawn images alone, on real ones, at ε = 1 and 10: MNIST of "
        "30,000 people, Fashion-MNIST of 15,000",
        f"{at('mnist', 1)} and {at('mnist', 10)}; {at('fashion_mnist', 1)} and "
        f"{at('fashion_mnist', 10)}",
    )


def visits() -> tuple[str, str]:
    ours, one = (
        found("visits", dataset="randhie", method=method, epsilon=1.0)
        for method in ("visits", "aggregates")
    )
    return (
        "people with many rows, 5,912 with 20,190 years at ε = 1 for a person with "
        "all years: 2-way AVD of people / an "
        "event / both / an event and the next; a person's sum, mean and 90 % quantile",
        f"{bare(ours.avd_person, ours.avd_events, ours.avd_across, ours.avd_next)}; "
        f"{ours.mean_error:.1%} and {ours.q90_error:.1%} off (one row a person, by "
        f"`gram`: {bare(one.avd_person)}; {one.mean_error:.1%} and "
        f"{one.q90_error:.1%})",
    )


def tied() -> tuple[str, str]:
    rows = figures.where(
        HERE / "tied" / "ours.csv", split="label", classifier="cnn", epsilon=4.0
    )

    def at(dataset: str, method: str) -> str:
        return bare(
            rows[(rows["dataset"] == dataset) & (rows["method"] == method)][
                "accuracy"
            ].mean()
        )

    return (
        "the image at one party, its label at another: a CNN that saw drawn pairs "
        "alone, on real ones, ε = 4 (MNIST, Fashion-MNIST)",
        f"`tied` {at('mnist', 'tied')}, {at('fashion_mnist', 'tied')}; `verti-gan` "
        f"{at('mnist', 'verti-gan')}, {at('fashion_mnist', 'verti-gan')}",
    )


LINES = {
    critic: ("critic",),
    verti_gan: ("verti_gan",),
    adult: ("joint",),
    har: ("joint",),
    vertical: ("vertical",),
    secure_product: ("secure_product",),
    alignment: ("alignment",),
    union: ("union",),
    scale: ("scale",),
    cohort: ("cohort",),
    sign_ds: ("sign_ds",),
    fed_stdg: ("fed_stdg",),
    network: ("network",),
    population: ("cohort",),
    papers: ("fed_wae", "fed_stdg", "sgde", "gen_fl"),
    evaluate: ("evaluate",),
    attacks: ("attacks",),
    answers: ("answers",),
    numbers: ("numbers",),
    strangers: ("strangers",),
    aggregators: ("aggregators",),
    images: ("images", "series"),
    visits: ("visits",),
    tied: ("tied",),
}


def overview() -> str:
    return table(
        ("what", "figure", "where"),
        [
            (
                *line(),
                ", ".join(f"[{folder}]({folder}/README.md)" for folder in folders),
            )
            for line, folders in LINES.items()
        ],
    )


TABLES = {"benchmarks": overview}
