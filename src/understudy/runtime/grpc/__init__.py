"""Parties in different institutions: asks and answers over gRPC with mutual TLS.

Parties dial out, to one port of the server; nobody dials a party. Each holds one
long-lived stream:

    party   → hello
    server  → contract            party → signature, or refusal
    server  → ask 1               party → answer 1
    …                             one ask at a time
    server  → end

Who has only an invitation says enrol instead of hello, gets its certificate, and comes
back. While one end works or has nothing to ask, it says "beat" now and then: a line on
which nothing is heard for 45 s is dead, and is hung up.

A message is a run of frames: the first holds a short JSON head and the beginning of the
body, the others more of the body. A frame is at most 2 MiB and is sent when the one
before was taken, so that a slow reader slows its writer down and a gigabyte needs no
gigabyte of buffers. There is no protobuf: bodies are what `runtime.wire` makes.

When a stream breaks, the party dials again (with jitter) and the server repeats the ask
that is open; the party answers from its journal if it had answered before
(`runtime.session`). Only a deadline ends this.

Guarantee: nothing but the messages of a signed contract is decoded, at either end; a
stream that says anything else is closed, and the service goes on. Edges: who has no
certificate of this federation does not get past TLS; who has one that is not on the
roster is refused before a byte of it is read.
"""
