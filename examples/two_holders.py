"""Two holders, one joint synthetic table, in Python. Run it: `python examples/two_holders.py`."""

import sys
import tempfile

import understudy as us
from understudy.data.samples import rand_health

tables, schemas = rand_health()  # two DataFrames about partly the same people, and their public schemas
rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 300
with tempfile.TemporaryDirectory() as ledgers:  # a real holder keeps its ledger for good
    federation = us.Federation(tables, schemas, budget=us.Budget(epsilon=4, delta=1e-5), ledgers=ledgers)
    result = us.train("verti-gan", federation, rounds=rounds, latent=64, common=[256])
    print(result.generator.sample(3, seed=0)[["age", "health", "visits", "coinsurance", "income"]])
    party, person = result.privacy.epsilon("clinic"), result.privacy.epsilon()
    print(f"per party: ε ≤ {party:.2f}, per person over both: ε ≤ {person:.2f}")
