"""What was spent and what may be: events and their prices, budgets, the ledger of a
holder, and the statement of a run.

`accounting` alone turns events into ε; `ledger` writes a price to disk before anything
is computed from rows. Import its modules one by one: some commands must start without
the accountant.
"""
