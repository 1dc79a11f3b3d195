"""A rule of one's own chooses; everything else is as for the built-in selectors."""

import pytest

from core.environments.plugin_code import file_code
from core.errors import PluginError
from core.recipe.plugin_specs import NamedPluginSpec
from core.recipe.specs import SelectionSpec
from core.selection.plugins import open_selector
from core.selection.selectors import select_positions
from core.trajectory.trajectory import Trajectory

SPANS = [("system", 0, 4), ("assistant_text", 4, 10), ("assistant_final", 10, 16)]
KEYS = ("sys", "gen:0:text", "gen:0:block")


@pytest.fixture
def episode():
    return Trajectory.model_validate(
        {
            "trajectory_id": "t0",
            "task_id": "t",
            "environment": "e",
            "token_ids": [5] * 16,
            "spans": [
                {"span_type": kind, "start": start, "end": end, "text": "x", "segment_key": key}
                | ({} if key == "sys" else {"turn_id": 0})
                for (kind, start, end), key in zip(SPANS, KEYS, strict=True)
            ],
            "tokenizer_digest": "d",
            "verification": {"solved": True, "reward": 1.0, "failure_category": "solved"},
            "termination_reason": "final_answer",
        }
    )


def spec_of(path, name="rule", **params):
    code = file_code(path)
    plugin = NamedPluginSpec(
        name=name, params=params, sha256=code.sha256, distribution=None, version=None
    )
    return SelectionSpec(
        selector="plugin",
        ratio=0.5,
        max_positions_per_trajectory=None,
        critical_weight=2.0,
        other_weight=1.0,
        plugin=plugin,
    )


@pytest.fixture
def choose(tmp_path, episode):
    def chosen(body, run_seed=3, params=None, **changes):
        path = tmp_path / "rule.py"
        path.write_text(f"import random\n\ndef rule(trajectory, spec, seed):\n    {body}\n")
        spec = spec_of(path, **(params or {})).model_copy(update=changes)
        return select_positions(episode, spec, run_seed, open_selector(spec, path))

    return chosen


def test_a_rule_reads_trajectory_ratio_and_params_and_order_does_not_matter(choose):
    body = "return trajectory.target_positions()[::-spec.params['step']]"
    chosen = choose(body, params={"step": 3})
    assert chosen.positions == [6, 9, 12, 15]
    assert chosen.weights == [1.0, 1.0, 2.0, 2.0]
    assert chosen.stats.selector == "plugin"
    assert choose("return [4] if spec.ratio == 0.5 else []").positions == [4]
    assert choose("yield 9; yield 4").positions == [4, 9]


def test_a_cap_and_skipped_tokens_are_applied_as_for_every_selector(choose):
    body = "return trajectory.target_positions()"
    assert choose(body, max_positions_per_trajectory=7).positions == [4, *range(10, 16)]
    assert choose(body, skip_first_tokens=2).positions == list(range(6, 16))


def test_the_seed_belongs_to_run_and_trajectory(choose):
    body = "return random.Random(seed).sample(trajectory.target_positions(), 4)"
    assert choose(body).positions == choose(body).positions
    assert choose(body).positions != choose(body, run_seed=4).positions


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return [3]", "returns 3, no position of the student's"),
        ("return [99]", "returns 99, no position of the student's"),
        ("return [4.0]", "returns 4.0, no position"),
        ("return [True]", "returns True, no position"),
        ("return [4, 4]", "returns a position twice"),
        ("return None", "returns a NoneType, not positions"),
        ("return 'abc'", "returns a str, not positions"),
        ("return 1 / 0", "raises on t0: ZeroDivisionError"),
        ("yield 4; yield 1 / 0", "raises on t0: ZeroDivisionError"),
    ],
)
def test_what_is_no_selection_is_refused(choose, body, message):
    with pytest.raises(PluginError, match=message):
        choose(body)


def test_a_built_in_selector_has_no_rule_to_open(tmp_path):
    path = tmp_path / "rule.py"
    path.write_text("def rule(trajectory, spec, seed):\n    return []\n")
    assert open_selector(spec_of(path).model_copy(update={"plugin": None})) is None
    with pytest.raises(PluginError, match="defines no selector 'other'") as refusal:
        open_selector(spec_of(path, "other"), path)
    assert "It defines: rule." in refusal.value.hint
