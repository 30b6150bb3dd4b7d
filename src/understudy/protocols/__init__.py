"""Who sends what to whom: each method is a `train` that asks and a `Party` that
answers.

`core` is what all are written in, `joint` the engine of joint releases, `cross_device`
what protocols of many people share. Our own methods: `gram` (tables), `moments` (images
and series), `tied` (both), `visits` (people with events), `one_report` and
`class_means` (one local report a person), `aggregators` (uploads in two shares).
`papers` has the seven published systems. `runs.registry` knows all by name.
"""
