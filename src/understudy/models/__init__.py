"""Networks and mixtures, and how they are fitted to what was released: no rows, no
privacy, no loop over parties.

`tables`, `visits`, `moments` and `tied` are fitted to released sums; `nets` are the
papers' networks, `cohort` trains those of many clients as one batch, `kernels` is what
is written by hand for speed. What all of them are is a `network`; `plan` knows them by
kind, pools them, and looks at one that a stranger describes before it is built.
"""
