"""The table of random streams in docs/, made from the code: ``python …/randomness_table.py``."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

REPO = Path(__file__).resolve().parents[2]
PAGE = REPO / "docs" / "reproducibility.md"
BEGIN, END = "<!-- randomness -->", "<!-- end -->"
MAKERS = {"Random", "Generator", "default_rng", "derive_seed", "manual_seed"}
"""Calls that make a generator or name a stream."""


class Source(NamedTuple):
    """One place in the code where a stream begins."""

    file: str
    function: str
    expression: str


def sources() -> list[Source]:
    """Every stream of the product, in order of file and line."""
    found = []
    for package in ("core", "tasks", "flows"):
        for path in sorted((REPO / package).rglob("*.py")):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            name = path.relative_to(REPO).as_posix()
            found += [Source(name, *pair) for pair in _streams(tree, "")]
    return [one for one in found if one.file != "core/seeding.py"]


def _streams(node: ast.AST, function: str) -> Iterator[tuple[str, str]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Call) and _makes(child):
            yield function, _bare(child)
            continue
        inner = function
        if isinstance(child, (ast.FunctionDef, ast.ClassDef)):
            inner = f"{function}.{child.name}".strip(".")
        yield from _streams(child, inner)


def _makes(call: ast.Call) -> bool:
    """Whether a call makes a generator, or uses one that is made on the spot."""
    function = call.func
    if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Call):
        return _makes(function.value) or function.attr in MAKERS
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    return name in MAKERS


def _bare(call: ast.Call) -> str:
    """Return the call without modules and without what is drawn on the spot."""
    while (
        isinstance(call.func, ast.Attribute)
        and isinstance(call.func.value, ast.Call)
        and call.func.attr not in MAKERS
    ):
        call = call.func.value
    return re.sub(r"\b(random|torch|np)\.", "", ast.unparse(call)).replace("'", '"')


KNOWN = "test_tasks_are_the_known_ones"
DROPOUT = "what an adapter's dropout leaves out"
CUT = "test_a_run_that_was_cut_ends_in_the_same_bits"

ROWS: dict[tuple[str, str], tuple[str, str, str]] = {
    ("core/environments/calculator.py", "Calculator.generate_task"): (
        "tasks of the calculator",
        "`environment.split_seed`, as for every world: runs of different seeds see the same tasks",
        "test_splits_are_the_known_ones",
    ),
    ("core/environments/jsonnav.py", "JsonNavigation.generate_task"): (
        "tasks of jsonnav", "`environment.split_seed`", KNOWN,
    ),
    ("core/environments/jsonnav_documents.py", "build_document"): (
        "documents of jsonnav", "drawn with the task", "test_documents_are_the_known_ones",
    ),
    ("core/environments/recovery_database.py", "build_database"): (
        "databases of sqlite_recovery", "drawn with the task", KNOWN,
    ),
    ("core/environments/recovery_templates.py", "mixed_template"): (
        "mixed schemas of sqlite_recovery", "drawn with the task",
        "test_a_mixed_schema_is_the_known_one",
    ),
    ("core/environments/sqlite.py", "build_tables"): (
        "tables of sqlite", "drawn with the task", "test_rows_are_the_known_ones",
    ),
    ("core/environments/sqlite.py", "SqliteQuestions.generate_task"): (
        "tasks of sqlite", "`environment.split_seed`", KNOWN,
    ),
    ("core/environments/sqlite_recovery.py", "SqliteRecovery.generate_task"): (
        "tasks of sqlite_recovery", "`environment.split_seed`", KNOWN,
    ),
    ("core/environments/starter.py", "Starter.generate_task"): (
        "tasks of the starter that `opd env new` writes", "`environment.split_seed`",
        "test_the_starter_keeps_the_contract",
    ),
    ("core/environments/starter.py", "_prices"): (
        "prices of the starter", "drawn with the task", "test_the_starter_keeps_the_contract",
    ),
    ("core/environments/tool_policy.py", "ToolPolicy.generate_task"): (
        "tasks of tool_policy", "`environment.split_seed`", KNOWN,
    ),
    ("core/prompts/order.py", "_epoch"): (
        "order of tasks from files", "`run.seed`, anew each epoch",
        "test_the_order_is_the_documented_one",
    ),
    ("core/prompts/word_problems.py", "write_word_problems"): (
        "shipped word problems", "a constant", "test_the_shipped_files_are_what_the_command_writes",
    ),
    ("core/training/supervised.py", "task_order"): (
        "order of training tasks and oracle traces",
        "`run.seed`, or `models.teacher.toy_teacher_seed`; cycles and cold start read on from a "
        "cursor and start over at the end",
        "test_the_task_order_is_that_of_the_seeds",
    ),
    ("core/models/toy.py", "initial_weights"): (
        "weights of a toy model",
        "`run.seed` for the student, `models.teacher.toy_teacher_seed` for the teacher",
        "test_weights_come_from_the_seed_and_leave_the_global_generator_alone",
    ),
    ("core/models/adapters.py", "initialise"): (
        "start of an adapter", "`run.seed`, one stream per matrix",
        "test_the_start_is_uniform_and_depends_on_the_seed_alone",
    ),
    ("core/models/adapter_dropout.py", "RowDropout.__init__"): (
        DROPOUT, "a hash of counters: this stream of the layer, and a key per step and episode",
        "test_inputs_are_dropped_at_the_rate_and_kept_ones_grow",
    ),
    ("core/training/course.py", "Course.__init__"): (
        DROPOUT, "seed of the keys in a cold start; the order's seed", CUT,
    ),
    ("core/training/update.py", "update"): (
        DROPOUT, "seed of the keys in a cycle; `run.seed`", CUT,
    ),
    ("core/training/step.py", "Stepper.step"): (
        DROPOUT, "key of an episode in a step", CUT,
    ),
    ("core/rollout/noise.py", "stream_key"): (
        "sampled tokens",
        "the key of a SplitMix64 stream, the token's index its counter; `run.seed` for rollouts, "
        "`eval.seed` for evaluations above temperature 0",
        "test_golden_uniforms_of_the_published_stream",
    ),
    ("core/selection/selectors.py", "select_positions"): (
        "selected positions", "`run.seed`, for selectors that sample",
        "test_selections_have_their_published_positions",
    ),
    ("core/evaluation/statistics.py", "paired_bootstrap"): (
        "paired bootstrap", "given by the caller",
        "test_paired_bootstrap_equals_the_reference_on_five_pairs",
    ),
    ("core/evaluation/statistics.py", "hierarchical_bootstrap"): (
        "crossed bootstrap", "given by the caller",
        "test_crossed_interval_is_conditional_below_five_seeds",
    ),
    ("core/rollout/independence.py", "_Probe.__init__"): (
        "probe of the engine's check", "decides which steps are used, never what they give",
        "test_the_digest_repeats_and_follows_the_weights",
    ),
    ("core/teacher/independence.py", "_check"): (
        "probe of the scorer's check", "decides what is kept, never what it is",
        "test_the_check_runs_once_per_model_and_shape",
    ),
    ("core/models/hf.py", "HFBackend.gradient_check"): (
        "probe of an adapter's gradients", "decides whether a model is accepted",
        "test_every_adapter_matrix_gets_a_gradient",
    ),
    ("core/models/hf.py", "HFBackend._check_fresh_gradients"): (
        "probe of an adapter's gradients", "as above, with matrices that are not zero",
        "test_every_adapter_matrix_gets_a_gradient",
    ),
    ("core/artifacts/faults.py", "Fault._drop_unsynced"): (
        "what a power cut leaves, in `opd chaos`", "`--seed` and the attempt",
        "test_a_power_cut_takes_what_was_not_synced_and_ends_the_process",
    ),
    ("flows/chaos/trial.py", "chaos"): (
        "disturbances of `opd chaos`", "`--seed`",
        "test_disturbed_runs_end_in_the_bytes_of_the_undisturbed_one",
    ),
}  # fmt: skip
"""What is drawn at each place, where its seed comes from, and the test that holds it."""


def table() -> str:
    """Every stream with its owner, its derivation as the code has it, and its test."""
    lines = ["| what is drawn | owner | stream | seed | test |", "| --- | --- | --- | --- | --- |"]
    for one, expressions in _by_place().items():
        what, seed, test = ROWS[one]
        stream = ", ".join(f"`{each}`" for each in expressions)
        lines.append(f"| {what} | `{one[0]}` | {stream} | {seed} | `{test}` |")
    return "\n".join(lines)


def _by_place() -> dict[tuple[str, str], list[str]]:
    found = {(one.file, one.function): [] for one in sources()}
    for one in sources():
        found[one.file, one.function].append(one.expression)
    return {place: found[place] for place in ROWS if place in found}


def in_docs() -> str:
    """Return the table as the page has it."""
    return PAGE.read_text(encoding="utf-8").split(BEGIN)[1].split(END)[0].strip()


def write() -> None:
    """Put the table into the page."""
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN, 1)
    after = rest.split(END, 1)[1]
    PAGE.write_text(f"{before}{BEGIN}\n\n{table()}\n\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    write()
