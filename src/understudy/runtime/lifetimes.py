"""For how many days is good what a federation's authority signs."""

AUTHORITY_DAYS = 3650
DAYS = 365  # of the certificates of the server and the parties
INVITED_DAYS = 14
