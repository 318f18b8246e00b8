"""`sero train | eval | report | branch | reweigh | play | warmstart | data`: the trainer alone,
without any service.
"""

from __future__ import annotations

import fcntl
import json
import signal
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from sero_core.config import RunConfig, load_config
from sero_core.reachability import WeightRule
from sero_core.types import SeroError

EXIT_DISK_FULL = 74
EXIT_STOPPED = 75
EXIT_BAD_INPUT = 2

app = typer.Typer(
    name="sero",
    help="Train LLM agents for long-horizon tasks with executable oracle continuations.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
data_app = typer.Typer(help="Game data.", no_args_is_help=True)
app.add_typer(data_app, name="data")
webshop_app = typer.Typer(help="WebShop's catalogues and shops.", no_args_is_help=True)
data_app.add_typer(webshop_app, name="webshop")

ConfigPath = Annotated[Path, typer.Argument(help="TOML config, e.g. configs/sero_demo.toml")]
Out = Annotated[Path, typer.Option("--out", help="Folder of the run: log, checkpoints, config")]
Overrides = Annotated[
    list[str], typer.Option("--set", help="dotted.key=value, may be repeated", default_factory=list)
]
Checkpoint = Annotated[
    Path | None,
    typer.Option("--checkpoint", help="Checkpoint folder; default: the config's policy"),
]
Markdown = Annotated[bool, typer.Option("--markdown", help="The last table as markdown")]


Rows = Annotated[Path | None, typer.Option("--rows", help="Stored rows, as JSON")]


@app.callback()
def _root() -> None:
    """Keep the command names even where a single command is registered."""


@app.command()
def train(
    config: ConfigPath,
    out: Out,
    overrides: Overrides,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from the newest checkpoint in --out, if any")
    ] = False,
) -> None:
    """Train a run; writes records.jsonl, checkpoints/ and config.toml's resolved form to --out.

    Exit codes: 0 finished, 75 stopped on a signal after a checkpoint, 74 stopped because the disk
    is full, 2 unusable input.
    """
    from sero_core.commands import run_training

    with _clear_errors():
        code = run_training(load_config(config, tuple(overrides)), out, resume=resume, say=_say)
    raise typer.Exit(code)


@app.command("eval")
def evaluate(
    config: ConfigPath,
    out: Out,
    overrides: Overrides,
    checkpoint: Checkpoint = None,
    protocol: Annotated[
        str, typer.Option(help="fixed or paper; default: the config's evaluation.protocol")
    ] = "",
    baseline: Annotated[
        str, typer.Option(help="zero_shot, react or reflexion; default: the config's")
    ] = "",
    markdown: Markdown = False,
) -> None:
    """Evaluate a policy; prints tables and writes records.jsonl to --out."""
    from sero_core.commands import run_evaluation

    chosen = {"protocol": protocol, "baseline": baseline}
    parts = [f'evaluation.{key}={{name = "{name}"}}' for key, name in chosen.items() if name]
    with _clear_errors():
        loaded = load_config(config, (*parts, *overrides))
        run_evaluation(loaded, out, checkpoint, is_markdown=markdown, say=_say)


@app.command()
def report(
    folders: Annotated[list[Path], typer.Argument(help="Folders of runs or evaluations")],
    markdown: Markdown = False,
) -> None:
    """Tables in the layout of the papers, from the logs of runs."""
    from sero_core.commands import run_report

    with _clear_errors():
        run_report(folders, is_markdown=markdown, say=_say)


@app.command("reweigh")
def reweigh_stored(
    folder: Annotated[Path, typer.Argument(help="Folder of a run")],
    rule: Annotated[WeightRule, typer.Option(help="Compatibility rule")],
    beta: Annotated[float, typer.Option(min=0, help="0 = uniform")] = 1.0,
    tau: Annotated[float, typer.Option(help="Softmax temperature of rule admissible")] = 1.0,
    branch: Annotated[str, typer.Option(help="Id of one branch, to show its steps")] = "",
) -> None:
    """Weights and effective depth of a stored run under another rule, without a model."""
    from sero_core.commands_reweigh import run_reweigh

    with _clear_errors():
        if tau <= 0:
            raise SeroError(f"--tau is {tau:g}, expected more than 0")
        run_reweigh(folder, rule=rule, beta=beta, tau=tau, branch_id=branch, say=_say)


@app.command()
def branch(
    config: ConfigPath,
    out: Out,
    overrides: Overrides,
    checkpoint: Checkpoint = None,
    root: Annotated[
        str, typer.Option(help="EPISODE:STEP of a stored episode instead of new rollouts")
    ] = "",
    rows: Rows = None,
    branch_prefix: Annotated[str, typer.Option(help="Goes before the branch's id")] = "",
) -> None:
    """Roll out a checkpoint, choose roots, run the oracle; writes branches and weights to --out."""
    from sero_core.commands import run_branching
    from sero_core.commands_stored import GivenRoot, run_branch_from

    with _clear_errors():
        loaded = load_config(config, tuple(overrides))
        if not root:
            run_branching(loaded, out, checkpoint, say=_say)
            return
        episode_id, separator, step = root.rpartition(":")
        if not separator or not step.isdecimal():
            raise SeroError(f"--root is {root!r}, expected EPISODE:STEP, for instance i5g0e3:4")
        if rows is None or checkpoint is None:
            raise SeroError("--root needs --rows and --checkpoint")
        given = GivenRoot(episode_id, int(step), branch_prefix)
        run_branch_from(loaded, out, checkpoint, rows, given, say=_say)


@app.command()
def rescore(
    config: ConfigPath,
    out: Out,
    overrides: Overrides,
    rows: Annotated[Path, typer.Option("--rows", help="Stored branches with their episodes")],
    checkpoints: Annotated[
        list[Path], typer.Option("--checkpoint", help="Checkpoint folder, may be repeated")
    ],
) -> None:
    """Weights of stored branches under other checkpoints of their run."""
    from sero_core.commands_stored import run_rescoring

    with _clear_errors():
        run_rescoring(load_config(config, tuple(overrides)), out, checkpoints, rows, say=_say)


@app.command()
def play(
    config: ConfigPath,
    overrides: Overrides,
    split: Annotated[str, typer.Option(help="Split to play")] = "train",
    index: Annotated[int, typer.Option(min=0, help="Number of the game in the split")] = 0,
) -> None:
    """Act by hand. `!oracle` shows what the oracle would do, `!restore N` goes back to step N."""
    from sero_core.play import play_game

    with _clear_errors():
        play_game(load_config(config, tuple(overrides)), split, index, _lines(), _say)


@app.command()
def warmstart(
    out: Out,
    recipe: Annotated[
        list[str], typer.Option("--set", help="recipe field=value", default_factory=list)
    ],
    config: Annotated[
        Path, typer.Option(help="Config whose prompt section the policy is made for")
    ] = Path("configs/sero_demo.toml"),
) -> None:
    """Make the demo policy: tokenizer and weights by imitation of half-random episodes. Seeded."""
    from sero_core.commands import run_warmstart

    with _clear_errors():
        run_warmstart(load_config(config), tuple(recipe), out, say=_say)


@data_app.command("generate")
def generate(
    out: Annotated[Path, typer.Argument(help="Folder to fill; must hold no games yet")],
    seed: Annotated[int, typer.Option(min=0)] = 1,
    difficulty: Annotated[str, typer.Option(help="small, normal or large")] = "small",
    train_games: Annotated[int, typer.Option("--train", min=0)] = 600,
    valid_seen: Annotated[int, typer.Option(min=0)] = 200,
    valid_unseen: Annotated[int, typer.Option(min=0)] = 200,
) -> None:
    """Write generated games in ALFWorld's official layout. Same seed, same bytes."""
    from sero_core.commands import generate_games

    counts = {"train": train_games, "valid_seen": valid_seen, "valid_unseen": valid_unseen}
    with _clear_errors():
        generate_games(out, seed, difficulty, counts, say=_say)


@data_app.command("alfworld")
def alfworld(
    root: Annotated[
        Path | None,
        typer.Option(help="Data folder; default: $ALFWORLD_DATA, else ~/.cache/alfworld"),
    ] = None,
    archive: Annotated[
        Path | None, typer.Option("--from", help="Archive (zip or tar) instead of a download")
    ] = None,
) -> None:
    """Get ALFWorld's official games; checks their number and contents. Nothing half-done stays."""
    from sero_core.commands_data import get_alfworld

    with _clear_errors():
        get_alfworld(root, archive, say=_say)


@data_app.command("compile")
def compile_games(
    folder: Annotated[Path, typer.Argument(help="Folder with game.tw-pddl files below it")],
) -> None:
    """Fill the cache of compiled games, with a progress bar."""
    from sero_core.commands import compile_folder

    with _clear_errors():
        compile_folder(folder, say=_say)


@webshop_app.command("generate")
def generate_webshop_catalogue(
    out: Annotated[Path, typer.Option("--out", help="Folder for the three files")],
    num_products: Annotated[int, typer.Option(min=1, max=1_000_000)] = 1000,
    seed: Annotated[int, typer.Option(min=0)] = 1,
) -> None:
    """Write a made-up catalogue in WebShop's own file format. Same seed, same bytes."""
    from sero_core.commands_data import generate_webshop

    with _clear_errors():
        generate_webshop(out, num_products, seed, say=_say)


@webshop_app.command("prepare")
def prepare_webshop_shop(
    products: Annotated[Path, typer.Option(exists=True, help="items_shuffle*.json")],
    attributes: Annotated[Path, typer.Option(exists=True, help="items_ins_v2*.json")],
    out: Annotated[Path, typer.Option("--out", help="Folder of the shop")],
    human: Annotated[Path | None, typer.Option(exists=True, help="items_human_ins.json")] = None,
    nouns: Annotated[
        Path | None, typer.Option(exists=True, help="JSON with the nouns of every title")
    ] = None,
    tagger: Annotated[
        str, typer.Option(help="Without --nouns: auto (spaCy if installed), spacy or builtin")
    ] = "auto",
    num_products: Annotated[
        int | None, typer.Option(min=1, help="Read this many rows of the products file")
    ] = None,
    draw_seed: Annotated[int, typer.Option(help="Prices and upper prices")] = 0,
    shuffle_seed: Annotated[int, typer.Option(help="Order of the goals")] = 233,
) -> None:
    """Make a shop of WebShop's original files: search index, prices, goals, splits. Goes on after
    an interruption when it is run again.
    """
    from sero_core.commands_data import prepare_webshop

    with _clear_errors(), exclusive(out):
        prepare_webshop(
            (products, attributes, human),
            out,
            (nouns, tagger),
            (draw_seed, shuffle_seed),
            num_products,
            say=_say,
        )


@webshop_app.command("verify")
def verify_webshop_shop(
    folder: Annotated[Path, typer.Argument(help="Folder of a shop")],
) -> None:
    """Hash every file of a shop and print what is in it."""
    from sero_core.commands_data import verify_webshop

    with _clear_errors():
        verify_webshop(folder, say=_say)


@app.command("schema")
def schema() -> None:
    """Print the JSON schema of a run config."""
    _say(json.dumps(RunConfig.model_json_schema(), indent=1))


@contextmanager
def _clear_errors() -> Generator[None]:
    """A known error is one message and exit code 2; anything else is a crash with its traceback."""
    try:
        yield
    except SeroError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(EXIT_BAD_INPUT) from None


@contextmanager
def exclusive(folder: Path) -> Generator[None]:
    """Hold the folder's lock. Errors: `SeroError` when another process holds it."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SeroError(f"{folder} is in use by another process") from None
        yield


@contextmanager
def stop_on_signal(stop: list[int]) -> Generator[None]:
    """Append the signal number to `stop` on SIGTERM or SIGINT instead of dying."""
    previous = {
        number: signal.signal(number, lambda received, _: stop.append(received))
        for number in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _say(line: str) -> None:
    typer.echo(line)
    sys.stdout.flush()


def _lines() -> Iterator[str]:
    while True:
        try:
            yield input("> ")
        except EOFError:
            return


if __name__ == "__main__":
    app()
