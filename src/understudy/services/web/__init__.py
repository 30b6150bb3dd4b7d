"""What every service of ours has towards strangers, whatever it is for: the exchange, a collection, the console.

`doors` says who may stay connected, `limits` how much one caller may take, `serving` how a server answers, `skeleton`
what an application is built on, `messages` what all of them say, `addresses` which of them are this machine.
"""
