"""What rows are: public schemas, readers that hold rows to them, and levels. Nothing is fitted, nothing is priced.

*Public:* `column`, `schema`, `series`, `images`, `visits`, `rules`; `described` is any of these, `document` how they
are written down. *Rows:* `table` and `arrays`, by the rooms `reading` (from where they lie), `encoding` (as numbers)
and `kinds` (one object a kind). *Asked about:* `conditions`. *To begin with:* `infer`, `samples`.
"""
