"""Training the networks of many clients as one batch: parameters with a leading client axis, and the classifiers
that are trained so.
"""
