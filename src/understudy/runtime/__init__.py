"""How messages travel: `local` in this process, `grpc` between institutions (inside
Flower: `network.flower`).

`wire` turns messages into bytes; `contract` says what a party takes part in, `session`
and `journal` how it comes back after a kill, and what was asked of it; `certificates`
and `identity` say who is who.
"""

# For how many days is good what a federation's authority signs; the middle one:
# certificates of server and parties.
AUTHORITY_DAYS = 3650
DAYS = 365
INVITED_DAYS = 14
