"""DPLT and DPLT+: holders of columns grow one latent tree over their joint data, step by step, under pure ε.

Tang, Cheng, Su, Chen, Shao, "Differentially private publication of vertically partitioned data" (IEEE TDSC 2019), the
baseline of Zhang, master's thesis, TUM 2022, §3.3, and of Jiang et al., VertiGAN (PoPETs 2023(2)), §6.1.2. We follow
these two accounts, which name the steps and leave them open; each reading below is the simplest sound one.

    coding    a column of L levels is ⌈log₂ L⌉ binary attributes, the digits of its level's number (§3.3.1)
    step 1    each party groups its attributes, by the exponential mechanism on their association; a group's latent
              attribute is the attribute at its centre, and its others are leaves that hang on it
    step 2    noisy two-way tables of latent attributes, within parties and across, give their mutual information
    step 3    the server takes a maximum spanning tree of the latent attributes
    step 4    fresh noisy two-way tables along the tree, and of each leaf with its latent attribute, are its parameters
    drawing   attributes from the root outwards; a number beyond a column's levels loses its highest digit (§3.3.3)

DPLT+ (TICQ) prunes the pairs of step 2. A maximum spanning tree of all holds no edge within a party that a maximum
spanning tree of that party alone does not hold (the lightest edge of a cycle is never needed). So each party chooses
such a tree first, its index, again by association and the exponential mechanism; then only the edges of the
indices, and the pairs across parties, are measured. Where association and mutual information rank pairs alike and
nothing is hidden by noise, DPLT+ has DPLT's tree.

Paper → code: latent attribute → the first of a group; ε's three portions → `Config.split`, even by default.
Differs from the papers: noise is discrete Laplace, drawn exactly; tables across parties come from secure products
(docs/secure_products.md) instead of a protocol with a semi-trusted curator who adds the noise; what is public is the
schema, so no bin or level is read from rows.

Sensitivity (add or remove one person with all their columns). Step 1: `tree.association` is proven to move by
at most 1, a sum of g of them by at most g; a choice at ε₁/choices each. Step 2: a person is in one cell of each table,
so all P tables move by P in L1: discrete Laplace of scale P/ε₂ (and P is smaller in DPLT+). Step 4: likewise with the
b − 1 tables of a tree of b attributes. The three add up to ε (`study.PurePricing`).

Guarantee: ε-DP, δ = 0, for a person with all their columns at all parties, in one joint release, against an outsider,
the server, any party, and several parties together. Each party's ledger is charged that whole price, for the same
release: a person pays it once.
Edges: the server deals the masks of products, so it must not pool what it knows with a holder. Before step 1 the
parties greet each other through their sealed channels: had two of them been told different schemas, settings, prices or
keys, they would part there, and nothing is charged. A server that speaks for holders under keys of its own making is
not found out so; the contract of a run over the network names the schemas, and the ledgers name the keys.
"""

from understudy.protocols.dplt.study import Config as Config
from understudy.protocols.dplt.study import LatentTree
from understudy.protocols.joint import run

PROTOCOL = run.family(LatentTree, paper=__doc__, same_people=True, one_release=True, forecast=None)
train = PROTOCOL.train
