"""The `understudy` command.

A command imports what it works with when it is called, so that help and a mistyped word are answered at once.
"""

import json
import sys
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer

import understudy
from understudy.cli import asking, exchange, ledger, network, schema
from understudy.cli.console import FileArg, err, escape, note, out, print_table
from understudy.cli.init import init
from understudy.cli.synthesize import synthesize
from understudy.cli.training import summary, training
from understudy.ground.errors import ConfigError, PrivacyWarning, SchemaError, UnderstudyError, UtilityWarning
from understudy.runs.runfile import RunFile

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help="Private synthetic rows and models from data that must not leave its holders.\n\n"
    "Several holders obtain **one synthetic table** from rows that never leave them, at a privacy price that is "
    "written into each holder's ledger before anything is sent.\n\n"
    "Start with `understudy demo`. For one table of your own: `understudy synthesize`. For several holders: "
    "`understudy init` drafts schemas and a run file, `plan` says what it will cost, `run` carries it out, then "
    "`sample`, `report` and `ledger show`.",
)
app.add_typer(schema.app, name="schema")
app.add_typer(ledger.app, name="ledger")
app.command("init")(init)
app.command("synthesize")(synthesize)
asking.mount(app)
network.mount(app)
exchange.mount(app)


def main() -> None:
    """Run a command; an error of ours is one line in words, not a traceback."""
    with warnings.catch_warnings():
        for kind in (PrivacyWarning, UtilityWarning):
            warnings.simplefilter("always", kind)
        warnings.showwarning = _warn
        try:
            app()
        except UnderstudyError as error:
            err.print(f"[red]{type(error).__name__}:[/] {escape(str(error))}")
            sys.exit(1)


def _warn(message: Warning | str, *_: Any, **__: Any) -> None:
    note(str(message))


@app.command()
def demo(
    to: Annotated[
        Path | None, typer.Option("--out", help="Where to write; default: the next free runs/demo.")
    ] = None,
    protocol: Annotated[str, typer.Option(help="gram, or verti-gan.")] = "gram",
    epsilon: Annotated[float, typer.Option(help="What the run may cost each holder.")] = 2.0,
    visits: Annotated[
        bool, typer.Option("--visits", help="People with many rows: two insurers, all years of each person.")
    ] = False,
) -> None:
    """Two holders publish one joint synthetic table, from real data.

    A clinic and an insurer hold different facts about partly the same people (RAND Health Insurance
    Experiment). They find the shared people without showing ids, obtain one generator without showing
    rows, and write down what it cost. The page at the end shows how good it is.
    With --visits two insurers have people of their own with several years each, and publish two tables.
    """
    from understudy.api.demo import run_demo, run_visits_demo

    if visits and protocol != "gram":
        raise ConfigError("--visits is a protocol of its own. Nothing was read or charged.")
    with training() as watch:
        if visits:
            run_visits_demo(to, epsilon=epsilon, say=_say, watch=watch)
            return
        run_demo(to, protocol=protocol, epsilon=epsilon, say=_say, watch=watch)


@app.command()
def run(
    file: Annotated[Path | None, typer.Argument(help="The run file (TOML).")] = None,
    resume: Annotated[bool, typer.Option(help="Resume the run in the output folder.")] = False,
    example: Annotated[bool, typer.Option("--example", help="Print a run file to start from.")] = False,
    seed: Annotated[
        int | None,
        typer.Option(help="Rehearse: repeatable noise, no real ledger, no privacy. Public rows only."),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Do not print the plan first.")] = False,
) -> None:
    """Carry out a run file: align people, train, save the generator, synthetic rows and a privacy statement.

    Its first screen is the plan: what will be released, how uncertain it will be, and what it will take.
    """
    if example:
        out.print(_EXAMPLE, markup=False)
        return
    if file is None:
        raise typer.BadParameter("Which run file? `understudy run --example` prints one to start from.")
    body = RunFile.load(file)
    if not quiet and not resume:
        from understudy.api.plan import plan_file

        out.print(f"{plan_file(body)}\n", markup=False)
    from understudy.api.train import run_file

    with training() as watch:
        result, folder = run_file(body, resume=resume, watch=watch, seed=seed)
    summary(result, folder)


@app.command("plan")
def plan_run(
    file: FileArg,
    people: Annotated[
        int | None,
        typer.Option(
            min=1, help="About how many people, as far as that is public; default: as the file states."
        ),
    ] = None,
) -> None:
    """Say what a run file will release, with which noise and error, and what it will take. No row is read for it."""
    from understudy.api.plan import plan_file

    out.print(str(plan_file(RunFile.load(file, elsewhere=None), people=people)), markup=False)


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(help="A run's folder.")],
    publish: Annotated[
        bool, typer.Option(help="Leave out every figure that was computed on real rows.")
    ] = False,
    to: Annotated[
        Path | None, typer.Option("--out", help="Where to write; default: into the folder.")
    ] = None,
    party: Annotated[list[str] | None, typer.Option(help="Only what these holders can see.")] = None,
    target: Annotated[
        str | None,
        typer.Option(
            help="A column to predict: train on synthetic, test on real; default: the run's target."
        ),
    ] = None,
    holdout: Annotated[
        Path | None, typer.Option(help="Real rows that no training has seen (CSV or Parquet).")
    ] = None,
) -> None:
    """Write the page that helps a holder decide whether to publish."""
    from understudy.report.page import write_report

    page = write_report(
        folder, out=to, publish=publish, parties=party or None, target=target, holdout=holdout
    )
    rest = "" if publish else " Only for the holder; --publish writes one that may be published."
    out.print(f"Written to {page}.{rest}")


@app.command()
def evaluate(
    real: Annotated[
        Path, typer.Option(help="The real rows (CSV or Parquet; of people with events a folder).")
    ],
    synthetic: Annotated[Path, typer.Option(help="The synthetic rows, from any generator.")],
    schema: Annotated[Path, typer.Option(help="The public schema of both.")],
    holdout: Annotated[Path | None, typer.Option(help="Real rows that the generator has not seen.")] = None,
    target: Annotated[str | None, typer.Option(help="A column to predict.")] = None,
    another: Annotated[
        bool, typer.Option("--second-opinion", help="Also show figures of the library sdmetrics.")
    ] = False,
    to: Annotated[Path | None, typer.Option("--out", help="Also write a page (HTML).")] = None,
) -> None:
    """Compare synthetic rows with the real ones, for their holder: a table, people with events, images or series."""
    from understudy.report.compared import Asked, compared
    from understudy.report.page import write_evaluation_page

    lines, found = compared(Asked(real, synthetic, holdout, target, another, to is not None), schema)
    for line in lines:
        out.print(line, markup=False)
    if to is not None and found is not None:
        out.print(f"Written to {write_evaluation_page(found, to)}.")


@app.command()
def audit(
    file: FileArg,
    party: Annotated[
        str | None, typer.Option(help="The party to audit; default: the one with the smallest ε.")
    ] = None,
    trials: Annotated[
        int, typer.Option(min=50, help="How many runs with the person, and how many without.")
    ] = 1000,
    seconds: Annotated[
        float, typer.Option(help="Stop after this time, and use the trials done so far.")
    ] = 120.0,
) -> None:
    """Try to catch the code breaking its promise: an empirical lower bound on ε.

    Many small runs with and without one worst-case person, on made-up rows that fit the schemas; no row of yours is
    read. It fails (exit 1) if the measured ε is above the claimed ε, and exits with 2 if nothing could be audited. If
    the run was carried out, the result is saved in its folder, and `understudy report` shows it.
    """
    from understudy.evaluate.audit.audit_file import audit_run_file
    from understudy.runs.registry import config_for, file_of_rows, protocol_named

    body = file_of_rows(RunFile.load(file))
    config = config_for(body.protocol, body.settings)
    try:
        result = audit_run_file(
            body, protocol_named(body.protocol), config, party=party, trials=trials, seconds=seconds
        )
    except (ConfigError, SchemaError) as error:
        err.print(f"[red]{type(error).__name__}:[/] {escape(str(error))}")
        raise typer.Exit(2) from None
    out.print(str(result), markup=False)
    if (folder := body.path(body.out)).is_dir():
        (folder / "audit.json").write_text(json.dumps(result.to_dict(), indent=2, ensure_ascii=False) + "\n")
    if not result.passed:
        raise typer.Exit(1)


def _say(text: str) -> None:
    out.print(text, markup=False)


_EXAMPLE = """\
protocol = "gram"
out = "runs/joint"
people = 5000                       # about how many, as far as that is public: for `understudy plan` alone

[settings]                          # of the protocol; `understudy protocols gram` lists them
target = "churned"                  # a column to predict from the others; leave it out if there is none

[parties.clinic]
table = "clinic.csv"
schema = "clinic.toml"
epsilon = 2.0                       # what this run may cost a person here
delta = 1e-6
ledger = "ledgers/clinic.ledger"    # made if it is not there
ledger_epsilon = 8.0                # what all runs together may cost, for a new ledger; default: this run's.
ledger_delta = 1e-6                 # Afterwards `understudy ledger budget` changes it.

[parties.insurer]
table = "insurer.parquet"
schema = "insurer.toml"
epsilon = 2.0
delta = 1e-6"""


@app.command()
def protocols(
    protocol: Annotated[str | None, typer.Argument(help="One of them: shows its settings.")] = None,
) -> None:
    """The protocols that a run file can name, each with its source; or every setting of one."""
    from understudy.runs.registry import PROTOCOLS, protocol_named

    if protocol is not None:
        from understudy.runs.settings import settings_of

        out.print(protocol_named(protocol).paper.split("\n\n")[0], markup=False)
        print_table(
            ("setting", "default", "values", "meaning"),
            ((one.name, one.default, one.values, one.meaning) for one in settings_of(protocol)),
        )
        return
    for name, record in PROTOCOLS.items():
        out.print(f"[bold]{name}[/]  {escape(record.title)}")


@app.command()
def version() -> None:
    """Print the version."""
    out.print(understudy.__version__)
