"""All missing cells of a benchmark as runs of the deployment ``benchmark-arm``.

This waits for other flow runs and those never do: it runs on the pool ``ctl`` or in a process of
its own, and what it waits for on the pool ``gpu``. Every run has an idempotency key made of this
flow run, arm and seed, so a retry of this flow run finds its runs again and restarts failed ones.
"""

import time
from collections.abc import Mapping
from itertools import groupby
from typing import Any
from uuid import UUID

from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.objects import FlowRun, WorkerStatus
from prefect.deployments import run_deployment
from prefect.runtime import flow_run
from prefect.states import Scheduled

from core.errors import ServerError
from core.recipe.benchmark_grid import Cell
from core.recipe.recipe import Recipe
from core.recipe.runtime import Runtime
from flows.benchmarks.board import Board
from flows.benchmarks.sharing import sharing_cells

DEPLOYMENT = "benchmark-arm/benchmark-arm"
POOL = "gpu"
POLL_S = 1.0
"""Seconds between two looks at the runs."""


def run_deployments(board: Board, missing: list[Cell]) -> None:
    """Start what the arms of each seed share, then its arms, and wait until all have ended.

    Raises:
        ServerError: This flow run would wait for its own pool, or nothing takes runs there.
    """
    if not missing:
        return
    with get_client(sync_client=True) as client:
        _check_pool(client)
        seeds = {seed: list(cells) for seed, cells in groupby(missing, key=lambda one: one.seed)}
        arms: dict[UUID, Cell] = {}
        shared: dict[int, UUID] = {}
        common = board.grid.common
        sharing = {
            seed: sharing_cells(common[seed], own, board.place) for seed, own in seeds.items()
        }
        for seed, cells in seeds.items():
            if sharing[seed]:
                shared[seed] = _start_shared(client, board, seed)
            else:
                _start_arms(client, board, cells, arms)
        while shared or arms:
            for seed, run in list(shared.items()):
                ended = _ended(client, run)
                if ended is None:
                    continue
                del shared[seed]
                lost = [] if _is_completed(ended) else sharing[seed]
                for cell in lost:
                    board.fail(cell, f"what its arms share failed: {_words(ended)}")
                left = [cell for cell in seeds[seed] if cell not in lost]
                _start_arms(client, board, left, arms)
            for run, cell in list(arms.items()):
                ended = _ended(client, run)
                if ended is not None:
                    del arms[run]
                    _finish(board, cell, ended)
            if shared or arms:
                time.sleep(POLL_S)


def _check_pool(client: SyncPrefectClient) -> None:
    own = client.read_flow_run(UUID(str(flow_run.get_id())))
    if own.work_pool_name == POOL:
        raise ServerError(
            f"a benchmark on the pool {POOL} would wait for its own arms for ever",
            "Run it on the pool ctl, as deployments/prefect.yaml says.",
        )
    known = any(pool.name == POOL for pool in client.read_work_pools())
    workers = client.read_workers_for_work_pool(POOL) if known else []
    if not any(worker.status is WorkerStatus.ONLINE for worker in workers):
        raise ServerError(
            f"no worker takes flow runs of the pool {POOL}",
            "Start one with `opd up`, or run the benchmark without --deployments.",
        )


def _start_shared(client: SyncPrefectClient, board: Board, seed: int) -> UUID:
    common = board.grid.common[seed]
    parameters = _parameters(common.recipe, board.place(common.runtime), "shared")
    return _start(client, f"shared:{seed}", parameters)


def _start_arms(
    client: SyncPrefectClient, board: Board, cells: list[Cell], arms: dict[UUID, Cell]
) -> None:
    for cell in cells:
        parameters = _parameters(cell.recipe, board.place(cell.runtime), "arm")
        parameters["cold"] = cell.cold.model_dump(mode="json")
        arms[_start(client, f"{cell.arm}:{cell.seed}", parameters)] = cell
        board.begin(cell)


def _finish(board: Board, cell: Cell, ended: FlowRun) -> None:
    if _is_completed(ended):
        board.end(cell)
    else:
        board.fail(cell, _words(ended))


def _parameters(recipe: Recipe, runtime: Runtime, part: str) -> dict[str, Any]:
    return {
        "recipe": recipe.model_dump(mode="json"),
        "runtime": runtime.model_dump(mode="json"),
        "part": part,
    }


def _start(client: SyncPrefectClient, label: str, parameters: Mapping[str, Any]) -> UUID:
    """Start a run, or find the one of an earlier attempt and restart it if it failed."""
    run = run_deployment(
        DEPLOYMENT,
        parameters=dict(parameters),
        timeout=0,
        idempotency_key=f"{flow_run.get_id()}:{label}",
        flow_run_name=label.replace(":", "-seed"),  # until it starts and names itself
    )
    assert isinstance(run, FlowRun), "called from a synchronous flow"
    if run.state is not None and run.state.is_final() and not run.state.is_completed():
        client.set_flow_run_state(run.id, Scheduled(), force=True)
    return run.id


def _ended(client: SyncPrefectClient, run: UUID) -> FlowRun | None:
    found = client.read_flow_run(run)
    return found if found.state is not None and found.state.is_final() else None


def _is_completed(run: FlowRun) -> bool:
    return run.state is not None and run.state.is_completed()


def _words(run: FlowRun) -> str:
    assert run.state is not None, "it has ended"
    return f"{run.state.name}: {run.state.message or 'no message'} (flow run {run.name})"
