"""The tables of README.md, from ours.csv, population.csv and mechanisms.csv: `make tables NAME=cohort`."""

from pathlib import Path

from common.markdown import once, short, table
from common.rows import Row, read

HERE = Path(__file__).parent
MODELS = {
    "logistic_regression": "logistic regression, USPS (256 → 10)",
    "mlp": "MLP, Fashion-MNIST (784 → 96 → 10)",
    "lenet": "LeNet, Fashion-MNIST",
}
OPTIMISERS = {"sgd": "SGD", "adam": "Adam"}
MECHANISMS = {
    "ps": "PS",
    "em-mds": "EM-MDS",
    "naive": "naive h × PS",
    "sub-mds": "SubMDS",
    "proportional": "proportional (`wake-sleep`)",
    "duchi": "Duchi",
    "piecewise": "PM",
    "hybrid": "HM",
    "pm-sub": "PM-SUB",
    "fedsel": "FedSel",
}


def ours() -> str:
    rows = read(HERE / "ours.csv")
    names = once(MODELS[row["model"]] for row in rows)
    return table(
        (
            "model, data",
            "optimiser",
            "clients",
            "loop, ms",
            "cohort, ms",
            "ratio",
            "batched without the span trick, ms",
            "difference",
        ),
        [
            (
                name,
                OPTIMISERS[row["optimizer"]],
                f"{int(row['clients']):,}",
                short(row["loop_ms"]),
                short(row["cohort_ms"]),
                f"{ratio(row)}×",
                short(row["generic_ms"]),
                f"{float(row['difference']):.0e}".replace("e-0", "e-"),
            )
            for name, row in zip(names, rows, strict=True)
        ],
        "llr",
    )


def ratio(row: Row) -> str:
    return f"{float(row['loop_ms']) / float(row['cohort_ms']):.2g}"


def case(model: str, clients: int, optimizer: str = "sgd") -> Row:
    """The row of one case."""
    key = (model, str(clients), optimizer)
    return next(
        row for row in read(HERE / "ours.csv") if (row["model"], row["clients"], row["optimizer"]) == key
    )


def growth() -> str:
    """How much longer twenty times the clients take."""
    few, many = (float(case("logistic_regression", clients)["cohort_ms"]) for clients in (50, 1000))
    return f"twenty times the clients of logistic regression take {many / few:.1f} times as long"


def span() -> str:
    row = case("mlp", 250)
    return f"{short(row['generic_ms'])} to {short(row['cohort_ms'])} ms"


def population() -> str:
    rows = read(HERE / "population.csv")
    lines = table(
        ("people", "cohort", "before the first round, s", "a round, ms", "peak memory, MB"),
        [
            (
                f"{int(row['people']):,}",
                f"{int(row['cohort']):,}",
                row["start_s"],
                row["round_ms"],
                f"{int(row['peak_mb']):,}",
            )
            for row in rows
        ],
        "r",
    )
    took = {(int(row["people"]), int(row["cohort"])): float(row["round_ms"]) for row in rows}
    longer = took[10**6, 250] / took[10**4, 250] - 1
    step, above = (took[10**5, b] - took[10**5, a] for a, b in ((1_000, 4_000), (250, 1_000)))
    return (
        f"{lines}\n\nA hundred times the people take {100 * longer:.0f} % longer: a round is paid for by its cohort.\n"
        f"From 1,000 to 4,000 members its time grows by {step / 3:.1f} ms per 1,000, "
        f"from 250 to 1,000 by {above / 0.75:.1f} ms per 1,000."
    )


def mechanisms() -> str:
    return table(
        ("mechanism", "1,000 clients, d = 10⁵, two threads", "CPU seconds of one", "one client, d = 10⁷"),
        [
            (
                MECHANISMS[row["mechanism"]],
                f"{float(row['two_threads']):.2f}",
                f"{float(row['cpu_of_one']):.2f}",
                f"{float(row['one_client_at_1e7']):.2f}",
            )
            for row in read(HERE / "mechanisms.csv")
        ],
        "lr",
    )


TABLES = {
    "ours": ours,
    "growth": growth,
    "span": span,
    "mlp": lambda: f"{short(case('mlp', 250)['cohort_ms'])} ms",
    "population": population,
    "mechanisms": mechanisms,
}
