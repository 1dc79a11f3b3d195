"""A benchmark through a real stack: server, two workers, one run per arm and seed."""

import hashlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from flows.server import daemons
from flows.server.connection import api_url, bind
from flows.server.settings import activated
from flows.server.stack import down, up

REPO = Path(__file__).parents[3]

PREFECT_YAML = """
name: real
deployments:
  - name: benchmark-arm
    entrypoint: flows.benchmark_arm.benchmark_arm
    work_pool: {name: gpu}
  - name: benchmark
    entrypoint: flows.benchmark.benchmark
    parameters: {benchmark_path: two.yaml, mode: deployments}
    work_pool: {name: ctl}
"""
RULE = """
from pathlib import Path

def rule(trajectory, spec, seed):
    if Path("broken").exists():
        raise ValueError("this rule was made to fail")
    return trajectory.target_positions()
"""
TWO = """
name: two
base: {base}
seeds: [1]
cold_start: {{cycles: 2, rollouts_per_cycle: 4, demonstrations: 8}}
common_overrides:
  models:
    student: {{toy: {{hidden_size: 32, num_layers: 1, num_heads: 2, intermediate_size: 64}}}}
    teacher: {{toy: {{hidden_size: 32, num_layers: 1, num_heads: 2, intermediate_size: 64}}}}
  models.teacher.toy_pretrain_steps: 4
  models.teacher.toy_pretrain_batch_size: 4
  environment.train_tasks: 8
  environment.test_tasks: 2
  rollout.max_new_tokens_per_turn: 8
  train.cycles: 1
  train.rollouts_per_cycle: 4
  train.gradient_accumulation_steps: 4
  train.warmup_steps: 0
  train.eval_every_cycles: 0
  eval.baseline_enabled: false
allowed_differences: [selection.*, runtime.plugins.selector]
arms:
  - name: sound
  - name: fragile
    overrides:
      selection.selector: plugin
      selection.plugin.name: rule
      selection.plugin.path: {rule}
      selection.plugin.sha256: {sha256}
"""


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A checkout whose benchmark has one arm that fails while a file is there."""
    (tmp_path / "deployments").mkdir()
    (tmp_path / "deployments" / "prefect.yaml").write_text(PREFECT_YAML)
    (tmp_path / "pyproject.toml").write_text((REPO / "pyproject.toml").read_text())
    rule = tmp_path / "rule.py"
    rule.write_text(RULE)
    sha256 = hashlib.sha256(rule.read_bytes()).hexdigest()
    text = TWO.format(base=REPO / "recipes/toy.yaml", rule=rule, sha256=sha256)
    (tmp_path / "two.yaml").write_text(text)
    (tmp_path / "broken").touch()
    for name in [name for name in os.environ if name.startswith(("PREFECT_", "OPD_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PYTHONPATH", str(REPO))
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    down()
    assert daemons.strays(tmp_path / ".opd/prefect/run") == []


def prefect(*words):
    """What a user types in the checkout."""
    program = Path(sys.executable).with_name("prefect")
    environment = os.environ | {"DO_NOT_TRACK": "1", "PREFECT_HOME": str(Path.cwd() / "elsewhere")}
    done = subprocess.run(
        [str(program), *words], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def runs_of(client, deployment):
    """Flow runs of one deployment, by the part and arm that they are."""
    found = [one for one in client.read_flow_runs() if one.deployment_id == deployment.id]
    return {one.idempotency_key.partition(":")[2]: one for one in found}


@pytest.mark.server
@pytest.mark.slow
def test_a_retry_of_the_parent_runs_the_failed_arm_alone(root):
    from prefect.client.orchestration import get_client

    with bind(0) as listener:
        port = listener.getsockname()[1]
    assert up(port=port).complete
    prefect("deployment", "run", "benchmark")
    with activated(root / ".opd/prefect", api_url(port)), get_client(sync_client=True) as client:
        arm = client.read_deployment_by_name("benchmark-arm/benchmark-arm")
        own = client.read_deployment_by_name("benchmark/benchmark")

        def parent():
            [found] = [one for one in client.read_flow_runs() if one.deployment_id == own.id]
            return found

        def ended(attempt, seconds=240):
            deadline = time.monotonic() + seconds
            while time.monotonic() < deadline:
                found = parent()
                if found.run_count >= attempt and found.state.is_final():
                    return found
                time.sleep(0.5)
            raise AssertionError(f"{parent().state} after {seconds} s")

        first = ended(1)
        assert first.state.is_failed()
        assert "1 of 2 runs failed: fragile on seed 1" in first.state.message
        before = runs_of(client, arm)
        assert {name: run.state.type.value for name, run in before.items()} == {
            "shared:1": "COMPLETED",
            "sound:1": "COMPLETED",
            "fragile:1": "FAILED",
        }
        lines = json.loads((root / "runs/benchmark-two/status.json").read_text())
        assert {line["arm"]: line["state"] for line in lines} == {
            "sound": "done",
            "fragile": "failed",
        }

        (root / "broken").unlink()
        prefect("flow-run", "retry", str(first.id))
        second = ended(2)
        assert second.state.is_completed(), second.state.message
        after = runs_of(client, arm)
        assert {name: run.id for name, run in after.items()} == {
            name: run.id for name, run in before.items()
        }
        counts = {name: run.run_count for name, run in after.items()}
        assert counts == {"shared:1": 1, "sound:1": 1, "fragile:1": 2}
