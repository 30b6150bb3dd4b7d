"""Who sends what to whom: each method is a `train` that asks and a `Party` that
answers, in a room near its paper.

`core` is what all are written in. Tables: `gram`, `dplt`; images and series: `moments`;
both: `tied`; people with events: `visits`; GANs over columns: `gans`; silos that trade
generators: `sgde`; people who report one by one: `people`, or in two shares:
`aggregators`. `registry` knows them by name.
"""
