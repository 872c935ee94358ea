"""Puts an engine together in a process of its own: fences, technique, model, thread, HTTP front."""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import json.encoder
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from paceline.base.errors import PrerequisiteError
from paceline.families.serving.api.layers import Shape
from paceline.families.serving.core.engine.core import Engine
from paceline.families.serving.core.engine.front import Front
from paceline.families.serving.core.engine.model import Model
from paceline.families.serving.core.engine.stepper import Stepper
from paceline.families.serving.core.engine.thread import EngineThread, FencedScheduler
from paceline.families.serving.core.sealed import all_loaded
from paceline.worker.fences.guard import Guard
from paceline.worker.processes.process import die_with_parent
from paceline.worker.ranks.loading import load
from paceline.worker.ranks.session import CaseError

THREADS = 1
"""Of the CPU: the client has a core of its own."""


def main(arguments: list[str]) -> int:
    """Serve until the parent is gone; what goes wrong before is one JSON line with ``status`` and ``reason``."""
    die_with_parent()
    told = _arguments(arguments)
    torch.set_num_threads(THREADS)
    try:
        application = _build(told)
        serve = _server(application)
    except CaseError as error:
        print(
            json.dumps({"status": error.status, "reason": error.reason, "detail": error.detail}), flush=True
        )
        return 1
    except PrerequisiteError as error:
        print(json.dumps({"status": "unsupported", "reason": str(error), "detail": None}), flush=True)
        return 1
    return serve(told.port)


def _arguments(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="paceline.families.serving.core.engine")
    for name in ("technique-module", "technique"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--options", type=json.loads, default={})
    parser.add_argument("--model", type=json.loads, required=True)
    parser.add_argument("--engine", type=json.loads, required=True)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--port", type=int, default=0)
    return parser.parse_args(arguments)


def _build(told: argparse.Namespace) -> Front:
    """Import the technique inside the fences and put the engine around it.

    Raises:
        CaseError: It was refused, or cannot be imported or made.
    """
    # Beside the family, what the answer's bytes pass through: a technique could forge tokens there.
    guard = Guard((*all_loaded(), json, json.encoder, socket))
    loaded = load(told.technique_module, told.technique, "serving", Path.cwd(), guard)
    if loaded.refusal is not None:
        raise loaded.refusal
    settings: dict[str, Any] = told.engine
    try:
        # Making it runs its code already, so that happens inside of the fences too.
        with guard.watch():
            scheduler = loaded.factory(**told.options)
    except Exception as error:
        raise CaseError("crashed", f"cannot be made: {type(error).__name__}: {error}") from error
    shape = Shape.of(told.model)
    computing = Model(shape, settings["num_blocks"] * settings["block_size"], told.device)
    engine = Engine(FencedScheduler(scheduler, guard), Stepper(computing, settings["block_size"]), **settings)
    return Front(EngineThread(engine), vocabulary=shape.vocab, context=shape.max_context)


def _server(application: Front) -> Callable[[int], int]:
    """Return what serves an application on a port, after uvicorn is known to be there.

    Raises:
        PrerequisiteError: It is not installed.
    """
    try:
        import httptools  # noqa: F401, PLC0415 - an optional dependency, which uvicorn uses
        import uvicorn  # noqa: PLC0415 - an optional dependency
    except ImportError as error:
        raise PrerequisiteError(
            "the engine's front needs uvicorn and httptools", fix="pip install 'paceline[serve]'"
        ) from error

    def serve(port: int) -> int:
        # A burst of an open loop has to wait in the kernel's queue; refused connections would be the harness's
        # failures.
        listening = socket.create_server(("127.0.0.1", port), backlog=4096)
        print(json.dumps({"port": listening.getsockname()[1]}), flush=True)
        config = uvicorn.Config(
            application,
            http="httptools",
            loop="asyncio",
            lifespan="off",
            log_level="warning",
            access_log=False,
        )
        # The model and all modules leave the collector's sight, so that no collection in a step walks them.
        gc.collect()
        gc.freeze()
        asyncio.run(uvicorn.Server(config).serve(sockets=[listening]))
        sys.stdout.flush()
        os._exit(0)  # the engine's thread may be in the middle of a step

    return serve
