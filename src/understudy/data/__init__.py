"""What rows are: public schemas, readers that hold rows to them, and levels. Nothing is fitted, nothing is priced.

*Public:* `column`, `schema`, `series`, `images`, `classes`, `mixed`, `visits`, `rules`; `described` is any of these,
`document` how they are written down. *Rows:* `table` and `arrays`, by the rooms `reading` (from where they lie) and
`encoding` (as numbers). *Asked about:* `conditions`, `meaning`, `pieces`. *Cut over holders:* `grid`, `partition`. *To
begin with:* `infer`, `coarsen`, `bought_bins`, `samples`. Others import these modules one by one.
"""
