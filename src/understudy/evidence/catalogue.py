"""Records for catalogues: Croissant 1.1 with PROV-O, DCAT-AP, and the registry of
deployments of differential privacy that NIST and OpenDP keep, in its YAML; of real rows
they say what the statement does.

Fields of an entry are those of the registry's schema at its highest tier
(opendp/deployments-registry-data, revision 3e9c812, 2026); tests hold entries to their
names, types and choices. Whoever hands one in validates it with the registry's own
file.
"""

import io
import itertools
import json
import re
from datetime import datetime, time
from pathlib import Path
from typing import Any

import pandas as pd

from understudy.evidence.facts import BLANK, Facts
from understudy.ground.check import file_names

PARQUET = "application/x-parquet"
_PROV = "http://www.w3.org/ns/prov#"
_HEALTH = "http://healthdataportal.eu/ns/health#"
_HEALTH_THEME = "http://publications.europa.eu/resource/authority/data-theme/HEAL"
_HEALTH_DATA_SPACE = "http://data.europa.eu/eli/reg/2025/327/oj"


def croissant(facts: Facts, files: dict[str, tuple[str, str]]) -> str:
    """The record as JSON-LD. `files` are each table's file in the folder and its
    digest.
    """
    import mlcroissant as mlc

    ctx = mlc.Context(conforms_to="http://mlcommons.org/croissant/1.1")
    about = facts.about
    labels = dict(
        zip(files, file_names([name or "rows" for name in files]), strict=True)
    )
    distribution = [
        mlc.FileObject(
            ctx=ctx,
            id=path,
            name=path,
            content_url=path,
            encoding_formats=[PARQUET],
            sha256=digest,
        )
        for path, digest in files.values()
    ]
    records = []
    for table, (path, _) in files.items():
        columns_of_table = [
            (name, dtype)
            for of_table, name, dtype in facts.columns()
            if of_table == table
        ]
        fields = [
            mlc.Field(
                ctx=ctx,
                id=f"{labels[table]}/{plain}",
                name=name,
                data_types=[getattr(mlc.DataType, _data_type(dtype))],
                source=mlc.Source(
                    ctx=ctx,
                    file_object=path,
                    extract=mlc.Extract(ctx=ctx, column=name),
                ),
            )
            for (name, dtype), plain in zip(
                columns_of_table,
                file_names([name for name, _ in columns_of_table]),
                strict=True,
            )
        ]
        records.append(
            mlc.RecordSet(ctx=ctx, id=labels[table], name=labels[table], fields=fields)
        )
    metadata = mlc.Metadata(
        ctx=ctx,
        name=facts.title,
        description=f"{about.description}. {_describe_origin(facts)}",
        license=[about.licence],
        url=about.url,
        version="1.0.0",
        cite_as=f"{facts.title}, {facts.date_made.isoformat()}, {facts.code}",
        creators=[
            mlc.Organization(ctx=ctx, name=name)
            for name in about.curators or facts.holders
        ],
        date_published=datetime.combine(facts.date_made, time()),
        distribution=distribution,
        record_sets=records,
        data_collection=f"Synthetic. {_describe_origin(facts)}",
        data_use_cases=[about.intended_use],
        personal_sensitive_information=[f"No row is a person's. {facts.guesses}"],
    )
    body = metadata.to_json()
    body["@context"] |= {"prov": _PROV}
    body["prov:wasGeneratedBy"] = _provenance(facts)
    return json.dumps(body, indent=1, ensure_ascii=False, default=str) + "\n"


def _data_type(dtype: Any) -> str:
    for name, holds in {
        "BOOL": pd.api.types.is_bool_dtype,
        "INT64": pd.api.types.is_integer_dtype,
        "FLOAT64": pd.api.types.is_float_dtype,
        "DATETIME": pd.api.types.is_datetime64_any_dtype,
    }.items():
        if holds(dtype):
            return name
    return "TEXT"


def _describe_origin(facts: Facts) -> str:
    owners = "their holder" if len(facts.holders) == 1 else "their holders"
    named = ", ".join(f"“{name}”" for name in facts.holders)
    return (
        f"Synthetic data by {facts.protocol} ({facts.code}), run {facts.run}, from "
        f"rows that stay with {owners} ({named}): ε = {facts.worst:.4g} at δ = "
        f"{facts.delta:g} ({facts.statement['adjacency']})."
    )


def _provenance(facts: Facts) -> dict[str, Any]:
    """The run as an activity: who took part, what it used, with which software."""
    return {
        "@type": "prov:Activity",
        "@id": f"urn:understudy:run:{facts.run.replace(' ', '_')}",
        "name": f"Run {facts.run} of {facts.protocol}",
        "prov:endedAtTime": facts.date_made.isoformat(),
        "prov:used": [
            {"@type": "prov:Entity", **_party_entity(party)}
            for party in facts.statement["parties"]
        ],
        "prov:wasAssociatedWith": [
            {"@type": "prov:Organization", "name": name} for name in facts.holders
        ]
        + [{"@type": "prov:SoftwareAgent", "name": facts.code}],
    }


def _party_entity(party: dict[str, Any]) -> dict[str, Any]:
    uses = "; ".join(
        f"{use['count']:,} × {use['words']}" for use in party["uses"]["insider"]
    )
    owner = {"@type": "prov:Organization", "name": party["name"]}
    return {
        "name": f"rows of {party['name']}, which stay there",
        "description": uses,
        "prov:wasAttributedTo": owner,
    }


def validate_croissant(path: Path) -> None:
    """ValueError unless mlcroissant takes the record and reads the first rows through
    it.
    """
    import mlcroissant as mlc

    try:
        dataset = mlc.Dataset(jsonld=str(path))
        for records in dataset.metadata.record_sets:
            next(iter(dataset.records(records.id)))
    except (mlc.ValidationError, mlc.GenerationError) as error:
        raise ValueError(f"the Croissant record is not valid: {error}") from error


def dcat(facts: Facts, files: dict[str, tuple[str, str]]) -> str:
    """The record as Turtle: a dataset, its distributions, who publishes it; health
    fields where that is its sector.
    """
    from rdflib import (
        DCAT,
        DCTERMS,
        FOAF,
        PROV,
        RDF,
        SKOS,
        XSD,
        BNode,
        Graph,
        Literal,
        Namespace,
        URIRef,
    )

    vcard = Namespace("http://www.w3.org/2006/vcard/ns#")
    spdx = Namespace("http://spdx.org/rdf/terms#")
    graph = Graph()
    about = facts.about
    known = {
        "dcat": DCAT,
        "dct": DCTERMS,
        "foaf": FOAF,
        "prov": PROV,
        "vcard": vcard,
        "spdx": spdx,
    }
    for prefix, space in known.items():
        graph.bind(prefix, space)
    dataset = URIRef(_address(about.url) + "#dataset")

    numbers = itertools.count()

    def node(kind: Any, values: dict[Any, Any]) -> BNode:
        # by its order: the same facts give the same file
        fresh = BNode(f"node{next(numbers):06d}")
        graph.add((fresh, RDF.type, kind))
        for key, value in values.items():
            graph.add((fresh, key, value))
        return fresh

    def say(key: Any, value: Any) -> None:
        graph.add((dataset, key, value))

    say(RDF.type, DCAT.Dataset)
    say(DCTERMS.title, Literal(facts.title, lang="en"))
    say(
        DCTERMS.description,
        Literal(f"{about.description}. {_describe_origin(facts)}", lang="en"),
    )
    say(DCTERMS.identifier, Literal(facts.run))
    say(DCTERMS.issued, Literal(facts.date_made.isoformat(), datatype=XSD.date))
    say(
        DCTERMS.publisher,
        node(
            FOAF.Agent, {FOAF.name: Literal(", ".join(about.curators or facts.holders))}
        ),
    )
    say(DCAT.contactPoint, node(vcard.Kind, {vcard.fn: Literal(about.contact)}))
    say(
        DCTERMS.provenance,
        node(
            DCTERMS.ProvenanceStatement,
            {
                DCTERMS.description: Literal(
                    f"{_describe_origin(facts)} {facts.guesses}"
                )
            },
        ),
    )
    for keyword in ("synthetic data", "differential privacy"):
        say(DCAT.keyword, Literal(keyword, lang="en"))
    activity = node(
        PROV.Activity,
        {FOAF.name: Literal(f"Run {facts.run} of {facts.protocol}, {facts.code}")},
    )
    for name in facts.holders:
        graph.add(
            (
                activity,
                PROV.wasAssociatedWith,
                node(FOAF.Agent, {FOAF.name: Literal(name)}),
            )
        )
    say(PROV.wasGeneratedBy, activity)
    if about.sector == "Healthcare":
        health = Namespace(_HEALTH)
        graph.bind("healthdcatap", health)
        dpv = Namespace("https://w3id.org/dpv#")
        graph.bind("dpv", dpv)
        say(
            health.numberOfRecords,
            Literal(sum(map(len, (facts.artefacts.synthetic_tables or {}).values()))),
        )
        say(health.hasStructuredData, Literal(True))
        theme = URIRef(_HEALTH_THEME)
        law = URIRef(_HEALTH_DATA_SPACE)
        graph.add((theme, RDF.type, SKOS.Concept))
        graph.add((theme, SKOS.prefLabel, Literal("Health", lang="en")))
        graph.add(
            (law, RDF.type, URIRef("http://data.europa.eu/eli/ontology#LegalResource"))
        )
        say(DCAT.theme, theme)
        say(URIRef("http://data.europa.eu/r5r/applicableLegislation"), law)
        say(
            dpv.hasPurpose,
            node(
                dpv.Purpose,
                {DCTERMS.description: Literal(about.intended_use, lang="en")},
            ),
        )
    media = URIRef(
        "http://www.iana.org/assignments/media-types/application/vnd.apache.parquet"
    )
    graph.add((media, RDF.type, DCTERMS.MediaType))
    for place, digest in files.values():
        where = URIRef(f"{_address(about.url)}/{place}")
        value = Literal(digest, datatype=XSD.hexBinary)
        sha256 = {
            spdx.algorithm: spdx.checksumAlgorithm_sha256,
            spdx.checksumValue: value,
        }
        values = {
            DCAT.accessURL: where,
            DCAT.downloadURL: where,
            DCTERMS.title: Literal(place),
            DCAT.mediaType: media,
            spdx.checksum: node(spdx.Checksum, sha256),
        }
        if about.licence != BLANK:
            values[DCTERMS.license] = node(
                DCTERMS.LicenseDocument, {DCTERMS.title: Literal(about.licence)}
            )
        say(DCAT.distribution, node(DCAT.Distribution, values))
    turtle = io.BytesIO()
    graph.serialize(turtle, format="turtle")
    return turtle.getvalue().decode()


def _address(url: str) -> str:
    """An address that can stand in Turtle: everything else is quoted."""
    from urllib.parse import quote

    return quote(url.rstrip("/"), safe=":/?#[]@!$&'()*+,;=%~._-")


def deployment_entry(facts: Facts) -> dict[str, Any]:
    """The entry, as plain values. What only people can say is marked."""
    about = facts.about
    stated = facts.statement
    product = "Machine learning model" if facts.artefacts.model else "Synthetic data"
    prices = "; ".join(
        f"against {who.replace('_', ' ')} ε = {e:.4g}"
        for who, e in facts.epsilon.items()
    )
    model = "Central" if len(facts.holders) == 1 else "Federated"
    if facts.local:
        model = "Local"
    basic = {
        "name": facts.title,
        "data_curators": list(about.curators or facts.holders),
        "description": about.description,
        "intended_use": about.intended_use,
        "data_product_type": product,
        "data_product_region": about.region,
        "publication_date": facts.date_made.isoformat(),
    }
    return {
        "url_slug": re.sub(r"[^a-z0-9]+", "_", facts.run.lower()).strip("_") or "run",
        "status": "Draft",
        "tier": 3,
        "deployment": {
            "basic": basic
            | ({"data_product_sector": about.sector} if about.sector else {}),
            "dp_variant": {
                "variant_name": "Pure DP" if facts.pure else "Approximate DP",
                "data_domain": (
                    f"Rows of {len(list(facts.columns()))} columns by a schema that "
                    "was declared public, held by "
                    f"{', '.join(facts.holders)}; `{facts.protocol}`."
                ),
                "unprotected_quantities": "; ".join(stated["outside"]),
            },
            "privacy_loss": {
                "privacy_unit": facts.unit.capitalize()
                if facts.joins_or_leaves
                else "See the details",
                "privacy_unit_details": f"Adjacent datasets: {stated['adjacency']}.",
                "privacy_parameters": {"epsilon": facts.worst}
                | ({} if facts.pure else {"delta": facts.delta}),
                "privacy_parameters_details": (
                    f"A {facts.unit} over all holders: {prices}. {facts.guesses}"
                ),
            },
            "deployment_model": {
                "model_name": model,
                "model_name_details": _flows(facts),
                "actors": "; ".join(facts.against()),
                "release_type": "One release",
                "release_type_details": (
                    "Each holder's ledger keeps what all of its runs cost a "
                    f"{facts.unit} together, and refuses a run "
                    f"that would pass its limit. Further plans: {BLANK.lower()}."
                ),
                "access_type": "Non-interactive",
                "access_type_details": (
                    "Whoever has the product uses it as it is; questions to it "
                    "cost nothing more."
                ),
                "data_source_type": "Static",
                "data_source_type_details": "Rows as they were when the run began.",
            },
            "accounting": {
                "post_processing": (
                    "The model is fitted to what was released, and rows are drawn "
                    "from it: no row is read again."
                ),
                "composition": (
                    f"All uses of a {facts.unit} are composed: {stated['accountant']}."
                ),
            },
            "implementation": {
                "preprocessing_and_hyperparameter_tuning": (
                    f"{facts.schema_origin} Settings were chosen before the run; what "
                    f"holders did before it: {BLANK.lower()}."
                ),
                "mechanisms": "\n".join([*facts.mechanisms, f"Code: {facts.code}."]),
                "justification": BLANK,
            },
            "administrative": {
                "notes": "\n".join([*stated["assumed"], *stated["unguarded"]])
                or "None.",
                "registry_authors": list(about.authors or (BLANK,)),
            },
        },
    }


def _flows(facts: Facts) -> str:
    if facts.local:
        return "Each person's own device adds the noise; nobody is trusted with a row."
    if len(facts.holders) == 1:
        return (
            "The holder adds the noise before anything leaves it; a server that asks "
            "is not trusted with rows."
        )
    who = "The holders add noise to what they release"
    return (
        f"{who}; a server that is not trusted with rows asks them. Holders: "
        f"{', '.join(facts.holders)}."
    )
