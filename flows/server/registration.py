"""What a Prefect server must know before flows are deployed to it: pools, GPU slot, automation.

Runs with the server's settings in force. All of it may be there already.
"""

from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta

from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.client.schemas.objects import StateType
from prefect.events.actions import ChangeFlowRunState
from prefect.events.schemas.automations import AutomationCore, EventTrigger, Posture
from prefect.events.schemas.events import ResourceSpecification
from prefect.exceptions import ObjectAlreadyExists

from tasks.gpu import ensure_limit

ZOMBIES = "opd: flow runs whose process is gone"
SILENCE_S = 90
"""Seconds without a heartbeat, sent every 30, after which a flow run counts as crashed."""


def register(pools: Sequence[str]) -> None:
    """Create the pools, the GPU slot and the automation, where they are missing."""
    with get_client(sync_client=True) as client:
        for pool in pools:
            with suppress(ObjectAlreadyExists):
                client.create_work_pool(WorkPoolCreate(name=pool, type="process"))
        if not client.read_automations_by_name(ZOMBIES):
            client.create_automation(zombie_automation())
    ensure_limit()


def zombie_automation() -> AutomationCore:
    """Return the automation that marks flow runs as crashed once their heartbeat stops.

    A worker notices when one of its flow runs is killed; this is for when the worker is, too.
    """
    flow_runs = ResourceSpecification({"prefect.resource.id": ["prefect.flow-run.*"]})
    crash = ChangeFlowRunState(
        state=StateType.CRASHED,
        name=None,
        message="No heartbeat: its process is gone.",
        force=False,
    )
    return AutomationCore(
        name=ZOMBIES,
        trigger=EventTrigger(
            after={"prefect.flow-run.heartbeat"},
            expect={"prefect.flow-run.*"},
            match=flow_runs,
            for_each={"prefect.resource.id"},
            posture=Posture.Proactive,
            threshold=1,
            within=timedelta(seconds=SILENCE_S),
        ),
        actions=[crash],
    )
