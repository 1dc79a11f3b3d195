"""The smallest whole run."""

import pytest

TINY = """\
run: {mode: opd, seed: 3}
models:
  backend: toy
  student: {model_id: toy-student, toy: {hidden_size: 32, num_layers: 1, num_heads: 2,
            intermediate_size: 64, max_position_embeddings: 256}}
  teacher: {model_id: toy-teacher, toy_pretrain_steps: 6, toy_pretrain_batch_size: 4,
            toy: {hidden_size: 32, num_layers: 1, num_heads: 2, intermediate_size: 64,
                  max_position_embeddings: 256}}
environment: {name: calculator, params: {prompt_style: compact}, train_tasks: 12, eval_tasks: 6,
              test_tasks: 0}
rollout: {max_turns: 2, max_new_tokens_per_turn: 12, max_total_tokens: 128}
loss: {top_k: 8}
cold_start: {cycles: 3, rollouts_per_cycle: 4, learning_rate: 0.003}
train: {cycles: 2, rollouts_per_cycle: 4, gradient_accumulation_steps: 4, learning_rate: 0.001}
report: {max_trajectories: 2}
"""
"""A whole run in two seconds: it learns nothing, and takes every step."""


@pytest.fixture
def recipe_file(tmp_path):
    path = tmp_path / "tiny.yaml"
    path.write_text(TINY)
    return path


@pytest.fixture
def overrides(tmp_path):
    """Store and views of one test."""
    return [f"runtime.store={tmp_path / 'store'}", f"run.output_dir={tmp_path / 'runs'}"]
