"""Networks and mixtures, and how they are fitted to what was released: no rows, no privacy, no loop over parties.

`tables`, `visits`, `moments` and `tied` are fitted to released sums; `nets` are the papers' networks, `cohort` trains
those of many clients as one batch, `pool` draws from several. What all of them need: `adam`, `device`; `plan` and
`claims` look at a network that a stranger describes before it is built.
"""
