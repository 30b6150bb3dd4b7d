"""People with many rows: two insurers, each with people of its own and all of their
years, draw two tables whose keys fit. Run it: `python examples/people_with_years.py`.
"""

import argparse
import tempfile

import understudy as us
from understudy.data.samples import rand_years

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument(
    "--kinds", type=int, default=256, help="kinds of people that the fit may tell apart"
)
parser.add_argument("--steps", type=int, default=1200, help="steps of the fit, at most")
options = parser.parse_args()

# of each insurer a table of people and one of their years, and the public schema
tables, schemas = rand_years()
# a real holder keeps its ledger for good
with tempfile.TemporaryDirectory() as ledgers:
    federation = us.Federation(
        tables, schemas, budget=us.Budget(epsilon=1, delta=1e-5), ledgers=ledgers
    )
    print(
        us.plan(
            "visits", schemas, budget=us.Budget(epsilon=1, delta=1e-5), people=6_000
        )
    )
    result = us.train("visits", federation, kinds=options.kinds, steps=options.steps)
    people, years = result.generator.visits(5_000, where="coinsurance == 0", seed=0)
    print(people.head(3), years.head(5), sep="\n")
    total = years.groupby("zper")["outpatient"].sum().mean()
    print(
        f"{len(years) / len(people):.1f} years a person, and {total:.0f} dollars of "
        "outpatient care in all of them"
    )
    print(
        f"one person, with all years: ε ≤ {result.privacy.epsilon():.3f} at δ = "
        f"{result.privacy.delta}"
    )
