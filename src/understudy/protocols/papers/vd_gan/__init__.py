"""VDGAN: a private critic at each holder of columns (`protocol`), or thousands of
teachers that vote under noise (`pate`).
"""
