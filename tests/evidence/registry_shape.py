"""The registry's schema at its highest tier, as far as an entry of ours uses it."""

from typing import Any

from understudy.evidence.facts import SECTORS

_TEXT: dict[str, Any] = {"type": "string", "minLength": 1}


def _part(*texts: str, needed: bool = False, **others: Any) -> dict[str, Any]:
    """A table with these fields of text and those others, and no further ones."""
    known = dict.fromkeys(texts, _TEXT) | others
    shape: dict[str, Any] = {
        "type": "object",
        "additionalProperties": False,
        "properties": known,
    }
    return shape | (
        {
            "required": [
                *texts,
                *(name for name in others if name != "data_product_sector"),
            ]
        }
        if needed
        else {}
    )


def _choice(*values: Any) -> dict[str, Any]:
    return {"enum": list(values)}


_NAMES = {"type": "array", "items": _TEXT, "minItems": 1}
_DEPLOYMENT = _part(
    basic=_part(
        "name",
        "description",
        "intended_use",
        "data_product_region",
        needed=True,
        data_curators=_NAMES,
        data_product_type=_choice("Machine learning model", "Synthetic data"),
        publication_date={"type": "string", "format": "date"},
        data_product_sector=_choice(*SECTORS),
    ),
    dp_variant=_part(
        "data_domain",
        "unprotected_quantities",
        variant_name=_choice("Pure DP", "Approximate DP"),
    ),
    privacy_loss=_part(
        "privacy_unit",
        "privacy_unit_details",
        "privacy_parameters_details",
        privacy_parameters=_part(epsilon={"type": "number"}, delta={"type": "number"}),
    ),
    deployment_model=_part(
        "model_name_details",
        "actors",
        "release_type_details",
        "access_type_details",
        "data_source_type_details",
        model_name=_choice("Local", "Central", "Federated"),
        release_type=_choice("One release"),
        data_source_type=_choice("Static"),
        access_type=_choice("Non-interactive"),
    ),
    accounting=_part("post_processing", "composition"),
    implementation=_part(
        "preprocessing_and_hyperparameter_tuning", "mechanisms", "justification"
    ),
    administrative=_part("sources", "notes", registry_authors=_NAMES),
)
SHAPE = _part(
    url_slug={"type": "string", "pattern": "^[a-z0-9_]+$"},
    status=_choice("Draft"),
    tier=_choice(3),
    deployment=_DEPLOYMENT,
    needed=True,
)
