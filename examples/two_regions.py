"""A grid: two regions, and in each a hospital with people and all of their years, and a
registry with other columns of the same people. Run it: `python
examples/two_regions.py`.
"""

import argparse
import tempfile
from dataclasses import replace

import understudy as us
from understudy.data.samples import rand_years

# what a registry knows of a person; the rest is the hospital's
REGISTERED = ("site", "age", "female")

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument(
    "--people", type=int, default=3_000, help="people in a region, at most"
)
parser.add_argument(
    "--kinds", type=int, default=256, help="kinds of people that the fit may tell apart"
)
parser.add_argument("--steps", type=int, default=1200, help="steps of the fit, at most")
options = parser.parse_args()

# two holders with people of their own, each a table of people and one of their years
tables, described = rand_years()
held = {}
schemas = {}
for region, (name, two) in zip(("north", "south"), tables.items(), strict=True):
    whole = described[name]
    people = two["people"].head(options.people)
    years = two["events"]
    registry = replace(whole.people.select(REGISTERED), person=whole.person)
    others = [column for column in whole.people.names if column not in REGISTERED]
    held[f"hospital-{region}"] = {
        "people": people[[whole.person, *others]],
        "events": years[years[whole.person].isin(people[whole.person])],
    }
    held[f"registry-{region}"] = people[[whole.person, *REGISTERED]]
    schemas[f"hospital-{region}"] = replace(whole, people=whole.people.select(others))
    schemas[f"registry-{region}"] = registry

budget = us.Budget(epsilon=1, delta=1e-5)
print(us.plan("visits", schemas, budget=budget, people=6_000))
# a real holder keeps its ledger for good
with tempfile.TemporaryDirectory() as ledgers:
    federation = us.Federation(held, schemas, budget=budget, ledgers=ledgers)
    result = us.train("visits", federation, kinds=options.kinds, steps=options.steps)
    people, years = result.generator.visits(2_000, seed=0)
    print(people.head(3), years.head(5), sep="\n")
    joint = years.merge(people, on="zper")
    print(
        "dollars of outpatient care a year, of what hospitals know, by what "
        "registries know:"
    )
    print(joint.groupby("female")["outpatient"].mean().round(0).to_string())
    print(
        f"one person, over all holders: ε ≤ {result.privacy.epsilon():.3f} at δ = "
        f"{result.privacy.delta}"
    )
