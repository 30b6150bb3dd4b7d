"""Joint releases: one engine for all families in which holders release noisy sums once,
and a model is fitted to them.

`messages` is what is said, `party` a holder's side (`session`: what it holds
meanwhile), `server` the server's (`measurements`: what was released so far), `products`
those between holders by dealt masks and `encrypted` those by encryption, `pricing` what
a release costs, `run` all from the plan to what comes out. `stage` is what a family
writes: a `Stage` for each release and one `Study`, of which `run.family` makes the
protocol. `examples/dp_fedavg.py` is one in a file; `protocols/moments` is a larger one,
of a horizontal partition. Rules:

- A person moves block b by at most `sensitivity`, for every row and whatever terms are
  accepted: bound vectors in whole numbers after all that the server chose. That is all
  a family promises.
- A stage whose terms are {} follows from the settings alone. All else, and the noise of
  the release, is told by the holders to each other before rows are masked or anything
  is charged.
- Where columns are split (`grid` has several groups, and people are aligned), a block
  of two groups g < h is cut out of Σ v_g v_hᵀ: `product` says how long vectors are,
  `vectors` makes them, `across` takes the holder's share of the product and returns its
  parts. Of the stages in `lasting` these products stay until the session ends: a later
  stage finds them in `across` under the name of the stage that made them, and finds
  that stage in `before`.
- A block holds only cells that are released: what is not wanted is left out of `shape`,
  in `count` and in `across`.
- What each holder chose by itself (`Choice`) the server tells all in the next `terms`.
- Rows that are drawn among (`Holding.drawing`) are drawn when they are counted, and the
  same ones in one session.
- Settings are checked in the Config's `__post_init__` and nowhere else; what depends on
  schemas, in the study's `__init__`. Both sides run both.
"""
