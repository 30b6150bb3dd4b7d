"""Two holders, one joint synthetic table, in Python. Run it: `python
examples/two_holders.py`.
"""

import tempfile

import understudy as us
from understudy.data.samples import rand_health

# two DataFrames about partly the same people, and their public schemas
tables, schemas = rand_health()
# a real holder keeps its ledger for good
with tempfile.TemporaryDirectory() as ledgers:
    federation = us.Federation(
        tables, schemas, budget=us.Budget(epsilon=2, delta=1e-5), ledgers=ledgers
    )
    result = us.train("gram", federation)
    rows = result.generator.sample(3, where="age >= 40 and visits > 10", seed=0)
    print(rows[["age", "health", "visits", "coinsurance", "income"]])
    print(
        f"one person, over both holders: ε ≤ {result.privacy.epsilon():.3f} at δ = "
        f"{result.privacy.delta}"
    )
