"""What rows are: public schemas, readers that hold rows to them, and levels. Nothing is fitted, nothing is priced.

*Public:* `column`, `schema`, `series`, `images`, `classes`, `mixed`, `visits`, `rules`; `described` is any of these,
`document` how they are written down.
*Read:* `sources`, `files`, `databases`, `batches`, `written`, `forms`, `cells`, `labelled` → `table`, `streamed`,
`arrays`; `no_rows` where there are none. *Written:* `dtypes`, `writing`.
*Encoded:* tables by `codec` and `levels`, below a level by `fine`, `ends` and `values`; arrays by `frame`, `upright`,
`triangles`; many people by `features`, `slots` and `population`.
*Asked about:* `conditions`, `meaning`, `pieces`. *Cut over holders:* `grid`, `partition`. *To begin with:* `infer`,
`coarsen`, `bought_bins`, `samples`. Others import these modules one by one.
"""
