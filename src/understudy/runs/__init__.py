"""A run: what its file says, what holders bring, which protocol it names, and what
comes out of it.
"""
