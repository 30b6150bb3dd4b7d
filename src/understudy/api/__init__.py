"""What a user calls: a table in one line, a run of several holders, its plan, a
prediction, the demo.
"""
