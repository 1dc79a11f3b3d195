"""The page and the summary of a benchmark, from files alone."""

import json
import re

import pytest

from core.errors import OpdError
from core.evaluation.benchmark_episodes import shown_episodes
from core.report.benchmark_data import benchmark_report, is_benchmark_directory
from core.report.benchmark_figures import curve_figure
from core.report.benchmark_markdown import benchmark_summary
from core.report.benchmark_page import render_benchmark
from core.report.benchmark_report import write_benchmark_report

HOSTILE = "<script>alert('x')</script>\"'&</td>|"
ARMS = {"sft": "oracle", "frozen": "frozen student", "fresh": "fresh", "fresh-again": "fresh"}


def rows(arm, seed, solved):
    return [
        {
            **{"arm": arm, "seed": seed, "task_id": f"t{task}", "sample": 0, "method": "m"},
            **{"success": task < solved, "termination_reason": "final_answer"},
            **{"had_tool_error": task % 2 == 0, "recovered_after_tool_error": task < solved // 2},
            "failure_category": "solved" if task < solved else HOSTILE,
        }
        for task in range(12)
    ]


def point(cycle, rate):
    spent = {"optimizer_steps": cycle, "selected_tokens": 9 * cycle, "generated_tokens": 0}
    return {"cycle": cycle, "stage": "s", "stats": {"success_rate": rate}, **spent}


def result(arm, seed, solved):
    return {
        **{"arm": arm, "seed": seed, "tasks": 12, "episodes": 12, "solved": solved},
        **{"success_rate": solved / 12, "optimizer_steps": 8, "selected_tokens": 72},
        **{"generated_tokens": 10 * seed, "training_episodes": 8},
        "curve": [point(-1, 0.0), point(0, 0.25), point(8, solved / 12)],
        "budget": {
            **{"axis": "selected_training_tokens", "target": 70, "actual": 72.0},
            **{"overshoot": 2.0, "stopped": True},
        },
    }


@pytest.fixture
def directory(tmp_path):
    """The tables of a benchmark with four arms on two seeds, of hostile words."""
    tmp_path = tmp_path / "benchmark-b"
    tmp_path.mkdir()
    solved = {"sft": 3, "frozen": 8, "fresh": 11, "fresh-again": 11}
    cells = [(arm, seed, solved[arm] - seed) for seed in (1, 2) for arm in ARMS]
    document = {
        **{"name": "b", "description": HOSTILE, "digest": "d" * 64, "seeds": [1, 2]},
        "arms": [
            {
                **{"name": name, "description": HOSTILE, "method": "m_m", "objective": HOSTILE},
                **{"states": states, "differs": [["run.mode", '"opd"', HOSTILE]]},
            }
            for name, states in ARMS.items()
        ],
        **{"baseline": "sft", "budget": {"axis": "selected_training_tokens", "limit": 70}},
        **{"eval_split": "test", "missing": [], "identical": [["fresh", "fresh-again"]]},
        "comparisons": [[name, "sft"] for name in list(ARMS)[1:]] + [["fresh", "fresh-again"]],
        **{"alpha": 0.05, "looks": 1},
        "results": [result(*cell) for cell in cells],
        "published": {
            **{"source": f"someone {HOSTILE}", "setting": "one machine"},
            "arms": [{"arm": "fresh", "success": 0.109, "recovery": 0.091, "seconds": 686.8}],
            "comparisons": [
                {
                    **{"arm": "fresh", "against": "sft", "measure": "success"},
                    **{"effect": -0.1224, "lower": -0.1589, "upper": -0.0859},
                }
            ],
        },
    }
    ref = {"kind": "arm", "name": "opd", "key": "a" * 16, "digest": "c" * 64}
    status = [
        {
            **{"arm": arm, "seed": seed, "state": "done", "reason": None, "training_seconds": 4.0},
            **{"result": ref, "run": f"b-{arm}-seed{seed}"},
            "sources": [{"role": "student_0008", "address": "student/x-1", "digest": "e" * 64}],
        }
        for arm, seed, _ in cells
    ]
    spans = [{"type": "user", "model": False, "text": HOSTILE}]
    spans += [{"type": "assistant_final", "model": True, "text": "4"}]
    episodes = [
        {
            **{"arm": arm, "seed": 1, "task_id": "t4", "trajectory_id": "t4:x", "solved": True},
            **{"reason": "final_answer", "expected": "4", "predicted": HOSTILE, "spans": spans},
        }
        for arm in ARMS
    ]
    lines = [json.dumps(row) for cell in cells for row in rows(*cell)]
    (tmp_path / "results.json").write_text(json.dumps(document))
    (tmp_path / "rows.jsonl").write_text("\n".join(lines) + "\n")
    (tmp_path / "status.json").write_text(json.dumps(status))
    (tmp_path / "episodes.jsonl").write_text("\n".join(map(json.dumps, episodes)) + "\n")
    return tmp_path


def visible(html):
    """The page without the plotting library and the scripts."""
    return re.sub(r"<script.*?</script>", "", html, flags=re.DOTALL)


def change(directory, **changes):
    path = directory / "results.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_the_page_answers_first(directory):
    text = visible(render_benchmark(benchmark_report(directory)))
    row = text[text.index('<td class="short">fresh</td>') :][:500]
    for part in ("10/12 83.3 %", "9/12 75.0 %", "79.2 %", "better, for these seeds", "+66.7 ["):
        assert part in row
    assert "2 seeds: intervals and verdicts are for these seeds" in text
    assert "Equal byte for byte in all artifacts: fresh, fresh-again" in text
    assert text.index("<h2>Success</h2>") < text.index("<h2>What it cost</h2>")


def test_identical_arms_are_called_equal(directory):
    assert (
        "| fresh | fresh-again | success | 0.0 \\[0.0, 0.0\\] | – | – | equal byte for byte |"
        in (benchmark_summary(benchmark_report(directory)))
    )


def test_published_numbers_stand_beside_ours_as_theirs(directory):
    text = visible(render_benchmark(benchmark_report(directory)))
    assert "Published by someone" in text
    part = text[text.index("<h2>Beside published numbers") :]
    assert "success, published" in part
    assert '<td class="short">10.9 %</td>' in part
    assert "−12.2 [−15.9, −8.6]" in part


def test_costs_are_per_seed_and_per_solved_task(directory):
    summary = benchmark_summary(benchmark_report(directory))
    # Fresh: 72 tokens selected and 9.5 tasks solved per seed, 15 generated, 4 s.
    assert "| fresh | 8 | 72 | 15 | 8 | 4 | 9.5 | 7.58 | 1.58 | 0.42 |" in summary
    assert "| generated tokens | not equal | 10 to 20 |" in summary
    assert "| updates | equal | 8 |" in summary
    assert "| fresh | 1 | selected training tokens | 70 | 72 | 2 | budget |" in summary


def test_every_number_names_its_artifact(directory):
    (directory.parent / "b-fresh-seed1").mkdir()
    text = visible(render_benchmark(benchmark_report(directory)))
    assert f"arm/opd-{'a' * 16}" in text
    assert '<a href="../b-fresh-seed1/">1</a>' in text
    assert "student/x-1" in text
    assert "../b-frozen-seed1/" not in text  # no such directory: an equal run answered it


def test_fresh_states_are_shown_against_frozen_ones(directory):
    text = visible(render_benchmark(benchmark_report(directory)))
    shown = re.findall(r'<div data-side="(\w+)" data-arm="([\w-]+)">', text)
    assert shown == [("left", "fresh"), ("right", "frozen")]


def test_text_from_recipe_and_model_is_escaped(directory):
    html = render_benchmark(benchmark_report(directory))
    assert "<script>alert" not in html
    assert HOSTILE not in html
    summary = benchmark_summary(benchmark_report(directory))
    assert "<script>" not in summary


def test_the_page_asks_no_other_host(directory):
    text = visible(render_benchmark(benchmark_report(directory)))
    assert not re.search(r"""(src|href)\s*=\s*["']?(https?:)?//""", text)


def test_the_same_files_give_the_same_bytes(directory):
    write_benchmark_report(directory)
    first = (directory / "report.html").read_bytes()
    write_benchmark_report(directory)
    assert (directory / "report.html").read_bytes() == first
    assert (directory / "summary.md").read_text().startswith("# b\n")


def test_a_benchmark_that_still_runs_has_a_page(directory):
    for name in ("status.json", "episodes.jsonl"):
        (directory / name).unlink()
    (directory / "rows.jsonl").write_text("")
    change(directory, results=[], identical=[], missing=[{"arm": "fresh", "seed": 1}])
    text = visible(render_benchmark(benchmark_report(directory)))
    assert "Missing: fresh on seed 1" in text
    assert "not compared: no seed has results of both" in text
    assert is_benchmark_directory(directory)


def test_tables_of_an_older_version_are_refused(directory):
    path = directory / "results.json"
    old = json.loads(path.read_text())
    del old["results"][0]["tasks"]
    path.write_text(json.dumps(old))
    with pytest.raises(OpdError, match="older version"):
        benchmark_report(directory)


def test_without_trajectories_no_episode_is_shown():
    assert list(shown_episodes({}, [], 1)) == []


def test_an_arm_that_left_some_of_the_budget_is_not_called_equal(directory):
    note = "Made equal by this benchmark: selected training tokens"
    assert f"{note}. Equal byte" in benchmark_summary(benchmark_report(directory))
    document = json.loads((directory / "results.json").read_text())
    document["results"][1]["budget"] |= {"actual": 60.0, "overshoot": 0.0, "stopped": None}
    (directory / "results.json").write_text(json.dumps(document))
    short = f"{note}, but for frozen on seed 1, which ended before."
    assert short in benchmark_summary(benchmark_report(directory))
    document["budget"] = {"axis": "optimizer_steps", "limit": None}
    document["results"][2]["optimizer_steps"] = 7
    (directory / "results.json").write_text(json.dumps(document))
    short = "optimizer steps, but for fresh on seed 1, which ended before."
    assert short in benchmark_summary(benchmark_report(directory))


def test_a_curve_of_nothing_has_an_axis_whose_ticks_differ(directory):
    document = json.loads((directory / "results.json").read_text())
    for one in document["results"]:
        for each in one["curve"]:
            each["stats"]["success_rate"] = 0.0
    (directory / "results.json").write_text(json.dumps(document))
    figure = curve_figure(benchmark_report(directory), "optimizer_steps")
    assert figure is not None
    assert figure.layout.yaxis.range[1] >= 0.1
