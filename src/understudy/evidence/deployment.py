"""An entry for the registry of deployments of differential privacy that NIST and OpenDP keep, in its YAML.

Fields are those of its schema at its highest tier (opendp/deployments-registry-data, revision 3e9c812, 2026);
tests hold entries to their names, types and choices. Whoever hands one in validates it with the registry's own file.
"""

import re
from typing import Any

from understudy.evidence.facts import BLANK, Facts


def deployment_entry(facts: Facts) -> dict[str, Any]:
    """The entry, as plain values. What only people can say is marked."""
    about, stated = facts.about, facts.statement
    product = "Machine learning model" if facts.artefacts.model else "Synthetic data"
    prices = "; ".join(f"against {who.replace('_', ' ')} ε = {e:.4g}" for who, e in facts.epsilon.items())
    basic = {
        "name": facts.title,
        "data_curators": list(about.curators or facts.holders),
        "description": about.description,
        "intended_use": about.intended_use,
        "data_product_type": product,
        "data_product_region": about.region,
        "publication_date": facts.made.isoformat(),
    }
    return {
        "url_slug": re.sub(r"[^a-z0-9]+", "_", facts.run.lower()).strip("_") or "run",
        "status": "Draft",
        "tier": 3,
        "deployment": {
            "basic": basic | ({"data_product_sector": about.sector} if about.sector else {}),
            "dp_variant": {
                "variant_name": "Pure DP" if facts.pure else "Approximate DP",
                "data_domain": _domain(facts),
                "unprotected_quantities": "; ".join(stated["outside"]),
            },
            "privacy_loss": {
                "privacy_unit": "Person" if facts.of_people else "See the details",
                "privacy_unit_details": f"Adjacent datasets: {stated['adjacency']}.",
                "privacy_parameters": {"epsilon": facts.worst} | ({} if facts.pure else {"delta": facts.delta}),
                "privacy_parameters_details": f"A person over all holders: {prices}. {facts.guesses}",
            },
            "deployment_model": {
                "model_name": _model(facts),
                "model_name_details": _flows(facts),
                "actors": "; ".join(facts.against()),
                "release_type": "One release",
                "release_type_details": (
                    "Each holder's ledger keeps what all of its runs cost a person together, and refuses a run that "
                    f"would pass its limit. Further plans: {BLANK.lower()}."
                ),
                "access_type": "Non-interactive",
                "access_type_details": "Whoever has the product uses it as it is; questions to it cost nothing more.",
                "data_source_type": "Static",
                "data_source_type_details": "Rows as they were when the run began.",
            },
            "accounting": {
                "post_processing": (
                    "The model is fitted to what was released, and rows are drawn from it: no row is read again."
                ),
                "composition": f"All uses of a person's rows are composed: {stated['accountant']}.",
            },
            "implementation": {
                "preprocessing_and_hyperparameter_tuning": (
                    "The schema is public, or was bought within the price. Settings were chosen before the run; what "
                    f"holders did before it: {BLANK.lower()}."
                ),
                "mechanisms": "\n".join([*facts.mechanisms, f"Code: {facts.code}."]),
                "justification": BLANK,
            },
            "administrative": {
                "notes": "\n".join([*stated["assumed"], *stated["unguarded"]]) or "None.",
                "registry_authors": list(about.authors or (BLANK,)),
            },
        },
    }


def _domain(facts: Facts) -> str:
    count = len(list(facts.columns()))
    return f"Rows of {count} columns by a public schema, held by {', '.join(facts.holders)}; `{facts.protocol}`."


def _model(facts: Facts) -> str:
    return "Local" if facts.local else "Central" if len(facts.holders) == 1 else "Federated"


def _flows(facts: Facts) -> str:
    if facts.local:
        return "Each person's own device adds the noise; nobody is trusted with a row."
    if len(facts.holders) == 1:
        return "The holder adds the noise before anything leaves it; a server that asks is not trusted with rows."
    who = "The holders add noise to what they release"
    return f"{who}; a server that is not trusted with rows asks them. Holders: {', '.join(facts.holders)}."
