import pytest

from flows.server.registration import SILENCE_S, ZOMBIES, register, zombie_automation
from flows.server.settings import SHARED

pytestmark = pytest.mark.server


def test_registering_twice_is_registering_once(prefect_session):
    from prefect.client.orchestration import get_client

    from flows.server.settings import activated

    with activated(*prefect_session):
        register(("gpu", "ctl"))
        register(("gpu", "ctl"))
        with get_client(sync_client=True) as client:
            pools = {pool.name: pool.type for pool in client.read_work_pools()}
            automations = [a.name for a in client.read_automations()]
            assert client.read_global_concurrency_limit_by_name("gpu").limit == 1
    assert pools == {"gpu": "process", "ctl": "process"}
    assert automations == [ZOMBIES]


def test_a_zombie_misses_several_heartbeats():
    automation = zombie_automation()
    frequency = int(SHARED["PREFECT_FLOWS_HEARTBEAT_FREQUENCY"])
    assert automation.trigger.within.total_seconds() == SILENCE_S == 3 * frequency
    assert automation.actions[0].state.value == "CRASHED"
