"""What every service of ours has towards strangers, whatever it is for: the exchange, a collection, the console.

`doors` says who may stay connected, `limits` how much one caller may take, `skeleton` what an application and its
server are built on.
"""
