"""One report a person: which columns to ask whom (`plan`), what a report is about (`sets`), the host (`party`), a
mixture fitted to the likelihood of the reports (`fit`), and the run (`protocol`).
"""
