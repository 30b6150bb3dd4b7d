"""One report a person: which columns to ask whom (`plan`), what a report is about, and
who makes or collects it (`party`), a mixture fitted to the likelihood of the reports
(`fit`, `given_target`) and to one-way tables (`together`), and the run (`protocol`).
"""
