"""Two aggregators: people split their tables between two who do not collude, and neither sees a row.

`protocol` has the settings and `train`, which is the first aggregator; `second` is the other, a party without rows;
`host` a holder of people, or a single phone; `upload` what a person sends.
"""
