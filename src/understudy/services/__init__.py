"""What listens: the exchange, the console, the receiver of people's uploads, and what
all have towards strangers.
"""
