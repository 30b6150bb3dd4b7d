"""One self-contained page by which a holder decides whether to publish.

`artefacts` is what a run left, `measure` and `people` what real rows say about it,
`verdict` what that means in words, `view` what the page shows, `page` writes it.
`words` and `marks` are its words, `plots` and `sheets` its pictures.
"""
