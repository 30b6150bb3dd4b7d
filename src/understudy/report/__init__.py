"""The report: one HTML file by which a holder decides whether to publish.

`artefacts` is what a run left, `measure` and `people` what real rows say about it.
`verdict` puts that in words, as `findings` about columns, pairs of columns, models and
the run (`column_findings`, `pair_findings`, `model_findings`, `run_findings`); `marks`
has the thresholds and `words` the wording. `view` is what the report shows, `plots` and
`sheets` are its pictures, and `page` writes it.
"""
