"""What may leave, and its price: the only place where rows become something that can be
sent.

`accounts` (events, prices, ledger, statement), `noise`, `gradients` (clipped sums),
`local` (one person's report), `secure` (sums and products over holders). `buy_schema`
and `buy_most_events` buy bounds and categories with budget, `kinds` is what a purchase
takes without a price.
"""
