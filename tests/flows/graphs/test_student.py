"""One student's way through its cycles is its own, whoever ran before it."""

import json
import subprocess
import sys

from core.recipe.loading import load
from flows.graphs.run import run_graph

ALONE = """
import json, sys
from core.recipe.loading import load
from flows.graphs.run import run_graph

loaded = load(sys.argv[1], sys.argv[2:])

def call(step, spec, *, name, **parents):
    return step.prepare(spec, runtime=loaded.runtime, name=name, **parents).run()

run = run_graph(loaded.recipe, call)
print(json.dumps({role: ref.digest for role, ref in run.parts.items()}))
"""


def test_an_arm_after_others_in_one_process_has_the_bytes_of_one_alone(recipe_file, tmp_path):
    """C79: resident models, generators and caches of one run must not reach the next."""

    def digests(store, *changes):
        loaded = load(recipe_file, [f"runtime.store={tmp_path / store}", *changes])

        def call(step, spec, *, name, **parents):
            return step.prepare(spec, runtime=loaded.runtime, name=name, **parents).run()

        return {role: ref.digest for role, ref in run_graph(loaded.recipe, call).parts.items()}

    digests("first", "run.seed=5", "loss.divergence=forward_kl")
    digests("first", "run.seed=6", "rollout.temperature=0.7")
    after = digests("second", "run.seed=4")
    script = [sys.executable, "-c", ALONE, str(recipe_file), "run.seed=4"]
    done = subprocess.run(
        [*script, f"runtime.store={tmp_path / 'alone'}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout.splitlines()[-1]) == after
