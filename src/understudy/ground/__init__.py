"""What everything stands on: errors, checks of plain values, durable files, packed
bytes, tensors in files.
"""
