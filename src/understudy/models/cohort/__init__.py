"""Training the networks of many clients as one batch, and the classifiers that are
trained so.
"""
