"""What rows are: public schemas, readers that hold rows to them, and levels. Nothing is
fitted, nothing is priced.

*Public:* `column`, `schema`, `series`, `images`, `visits`, `rules`. *Rows*: `table` and
`arrays`, by `reading` (from where they lie), `encoding` (as numbers) and `kinds` (one
object a kind). *Asked about:* `conditions`. *To begin with:* `infer`, `samples`.
"""
