"""Two aggregators: people split their tables or moments between two who do not collude,
and neither sees a row.

`first` is the server, `second` the other one, a party without rows; `host` a holder of
people, or a single phone; `upload` what a person sends; `terms` what all runs have in
common. `protocol` is about tables (`two-aggregators`), `moments` about images and
series (`shared-moments`).
"""
