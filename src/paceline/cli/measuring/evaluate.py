"""``paceline evaluate``: a model of one's own on questions, by several methods, without a suite file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from paceline.base.counting import number_of
from paceline.base.errors import EXIT_INFRASTRUCTURE, EXIT_OK
from paceline.cli.options import json_option, print_json, together, warn, wide_option

_model_options = together(
    click.option("--system", default="", metavar="TEXT|@FILE", help="What the system says first."),
    click.option(
        "--instruction",
        default=None,
        metavar="TEXT",
        help="What stands behind each question [default: to think, and to box the answer].",
    ),
    click.option(
        "--interface",
        type=click.Choice(("chat", "completions")),
        default="chat",
        show_default=True,
        help="How a server is asked; a model without a chat template completes texts.",
    ),
    click.option(
        "--without",
        default="",
        metavar="A,B",
        help="What the server lacks and is not asked for: logprobs, n, seed, continuation.",
    ),
    click.option(
        "--template-option",
        "template_options",
        multiple=True,
        metavar="NAME=VALUE",
        help="A variable of the chat template, such as enable_thinking=false.",
    ),
    click.option(
        "--extra", "extras", multiple=True, metavar="NAME=VALUE", help="A further field of every request."
    ),
    click.option(
        "--thinking-tags",
        "tags",
        default=None,
        metavar="OPEN,CLOSE",
        help="What thinking stands between, beside <think> and its like.",
    ),
)
"""What says which model is asked, and how."""


_drawing_options = together(
    click.option("--stop", "stops", multiple=True, metavar="TEXT", help="Text at which a trace ends."),
    click.option(
        "--temperature",
        type=click.FloatRange(min=0),
        default=0.6,
        show_default=True,
        help="Of traces that are drawn.",
    ),
    click.option(
        "--max-tokens",
        type=click.IntRange(min=1),
        default=2048,
        show_default=True,
        help="Most completion tokens of a trace.",
    ),
    click.option("--seed", type=int, default=0, show_default=True, help="Of draws of traces and questions."),
    click.option("--dtype", default="float32", show_default=True, help="Of a transformers model."),
    click.option("--device", default="cpu", show_default=True, help="Of a transformers model."),
)
"""What says how traces are drawn."""


_problem_options = together(
    click.option(
        "--question", "question_fields", multiple=True, metavar="COLUMN", help="Column of the question."
    ),
    click.option("--answer", "answer_fields", multiple=True, metavar="COLUMN", help="Column of the answer."),
    click.option(
        "--choice",
        "choice_fields",
        multiple=True,
        metavar="COLUMN",
        help="Column with a list of choices, or one for each choice.",
    ),
    click.option(
        "--answers",
        "kind",
        default=None,
        metavar="KIND",
        help="number, math or choice [default: as they look].",
    ),
    click.option(
        "--configuration",
        default=None,
        metavar="NAME,…",
        help="Parts of a data set of the hub, or of a folder laid out as one.",
    ),
    click.option(
        "--split",
        default=None,
        metavar="NAME",
        help="Split of a data set of the hub, or of a folder laid out as one.",
    ),
    click.option(
        "--allow-partial",
        "partial",
        is_flag=True,
        help="Leave rows out that cannot be read, and name them.",
    ),
    click.option(
        "--questions",
        "count",
        type=click.IntRange(min=1),
        default=None,
        help="Draw so many [default: all].",
    ),
)
"""What says which questions are asked."""


_run_options = together(
    click.option(
        "--concurrency",
        type=click.IntRange(min=1),
        default=8,
        show_default=True,
        help="Most requests under way at once.",
    ),
    click.option(
        "--retries",
        type=click.IntRange(min=0),
        default=6,
        show_default=True,
        help="Of a request that was refused for capacity, or found no connection.",
    ),
    click.option(
        "--timeout",
        default="10min",
        show_default=True,
        help="Of a request, until its answer is there whole; its question has failed then.",
    ),
    click.option(
        "--limit", default=None, metavar="requests=N,tokens=N", help="Most requests and tokens a minute."
    ),
    click.option(
        "--price", default=None, metavar="in=X,out=Y[,cached=Z]", help="Money for a million tokens."
    ),
    click.option(
        "--budget",
        default=None,
        metavar="tokens=N,time=T,money=X",
        help="Begin no request after so much; --resume goes on.",
    ),
    click.option("--resume", is_flag=True, help="Go on with what is kept, and pay nothing twice."),
    click.option("--replay", is_flag=True, help="Ask nobody: methods answer on the traces that are kept."),
    click.option(
        "--output",
        type=click.Path(file_okay=False, path_type=Path),
        default=None,
        metavar="DIR",
        help="Folder of the journal and results [default: evaluations/MODEL_PROBLEMS beside the store].",
    ),
)
"""What says how fast, how dear and where to."""


@click.command("evaluate")
@click.option(
    "--model", required=True, metavar="MODEL", help="openai:URL#NAME, transformers:FOLDER, or mock:right=0.7."
)
@click.option(
    "--problems",
    required=True,
    metavar="[FORMAT:]FILE",
    help="gsm8k:, math-500:, aime:, gpqa:, amc:, minerva:, olympiadbench: or svamp: before a file or NAME@REVISION; "
    "or a table of one's own.",
)
@click.option(
    "--methods",
    default="greedy,self-consistency",
    show_default=True,
    metavar="NAME,…",
    help="The first is what the others are compared with; NAME:option=value sets an option.",
)
@click.option(
    "--samples", type=click.IntRange(min=1), default=8, show_default=True, help="Traces that a question has."
)
@_model_options
@_drawing_options
@_problem_options
@_run_options
@wide_option
@json_option
def evaluate(wide: bool, as_json: bool, **options: Any) -> None:
    """Evaluate a model of one's own on questions with answers, by several methods on the same traces.

    Every trace is kept the moment it ends. A question that fails costs itself alone. Methods that need what the server
    lacks are refused before any question is sent.
    """
    from paceline.workflows.evaluation.evaluating import evaluate_as_asked  # noqa: PLC0415 - only when it is called
    from paceline.workflows.evaluation.figures import result, table  # noqa: PLC0415

    done = evaluate_as_asked(options, say=warn)
    if as_json:
        print_json(result(done.outcome, done.prices, done.setting))
    else:
        click.echo(table(done.outcome, done.prices, options["problems"]).render(wide=wide))
        click.echo(f"kept in {done.folder}")
    if done.outcome.left:
        warn(
            f"{number_of(done.outcome.left, 'row is', 'rows are')} left: the same command with --resume and a "
            "larger --budget goes on"
        )
    missing = any(row.status != "answered" for row in done.outcome.rows)
    sys.exit(EXIT_INFRASTRUCTURE if missing else EXIT_OK)
