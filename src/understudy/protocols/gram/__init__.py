"""Gram: all 1-way and 2-way marginals of the joint data are released once under noise,
and a mixture of products is fitted to them.

To read in this order: `settings`, what a user may choose; `protocol`, which stages a
run has and what the server chooses between them; `pricing`, how ε is divided among
them; `layout`, the Gram matrix as server and holders see it; `stages`, what a holder
counts in each; `fit`, what the server makes of all releases (`models/tables` is the
estimation); `forecast`, what a plan says before a run.
"""
