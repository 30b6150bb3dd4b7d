"""How many people a given ε and number of columns need: writes the tables of
docs/reading_a_report.md.

    python docs/people_needed.py

By the noise that `us.plan` forecasts for one holder's table, half of it numbers and
half categories of five, and by what `Expectation` says of so much noise. No row is
read.
"""

import math
import re
from pathlib import Path

import understudy as us
from understudy.privacy.buy_schema import quote
from understudy.privacy.kinds import without_bounds
from understudy.privacy.schema_share import schema_budget

PAGE = Path(__file__).with_name("reading_a_report.md")
EPSILONS = (0.2, 0.5, 1.0, 2.0, 4.0, 8.0)
WIDTHS = (5, 10, 20, 40)
DELTA = 1e-6
# what shares are to be within
COLUMNS = 0.05
PAIRS = 0.10
MANY = 10**9


def schema_of(columns: int) -> us.Schema:
    """Half numbers, half categories of five."""
    numbers = [us.Real(name=f"n{j}", low=0.0, high=1e6) for j in range(columns // 2)]
    texts = [
        us.Categorical(name=f"t{j}", categories=tuple("abcde"))
        for j in range(columns - columns // 2)
    ]
    return us.Schema(columns=(*numbers, *texts))


def needed(columns: int, epsilon: float) -> str:
    """People for single columns, and for pairs, to be within what is wanted."""
    budget = us.Budget(epsilon, DELTA)
    expected = us.plan(
        "gram", {"one": schema_of(columns)}, budget=budget, people=MANY
    ).expected
    assert expected is not None, "there is noise"
    single = expected.of_columns / COLUMNS
    pairs = expected.of_pairs / PAIRS
    return f"{_rounded(MANY * single):,} / {_rounded(MANY * pairs):,}"


def showing(columns: int, epsilon: float) -> str:
    """How many people have to share a text so that it shows, where nothing is
    declared.
    """
    kinds = without_bounds(
        {column.name: column.kind for column in schema_of(columns).columns}
    )
    share = schema_budget(us.Budget(epsilon, DELTA))
    offer = quote(kinds, epsilon=share.epsilon, delta=share.delta, gaussian=True)
    assert offer is not None, "there is something to buy"
    return f"{_rounded(offer.category_threshold):,}"


def _rounded(people: float) -> int:
    """Two digits, upwards."""
    unit = 10 ** max(0, math.floor(math.log10(people)) - 1)
    return math.ceil(people / unit) * unit


TABLES = {"needed": needed, "showing": showing}


def table(name: str) -> str:
    """One of the page's tables."""
    head = (
        "| columns | " + " | ".join(f"ε = {epsilon:g}" for epsilon in EPSILONS) + " |"
    )
    cells = {
        columns: [TABLES[name](columns, epsilon) for epsilon in EPSILONS]
        for columns in WIDTHS
    }
    rows = [f"| {columns} | {' | '.join(row)} |" for columns, row in cells.items()]
    return "\n".join([head, "|---" * (len(EPSILONS) + 1) + "|", *rows])


def filled(page: str) -> str:
    """The page with its tables."""
    for name in TABLES:
        mark = f"<!-- people: {name} -->"
        text = f"{mark}\n{table(name)}\n<!-- end -->"
        before, _, rest = page.partition(mark)
        page = before + text + re.split("<!-- end -->", rest, maxsplit=1)[1]
    return page


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
