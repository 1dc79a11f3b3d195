"""Files of prompts, and what a recipe says about them."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from core.models.toy_tokenizer import ToyTokenizer
from core.recipe.prompt_specs import PromptSplitSpec
from core.recipe.specs import TokenizerSpec

GSM8K = {
    "prompt_key": "question",
    "allow_plain_string_prompts": True,
    "answer_key": "answer",
    "answer_marker": "####",
    "answer_check": "numeric",
}


@pytest.fixture(scope="session")
def toy_codec():
    return ToyTokenizer()


@pytest.fixture(scope="session")
def spec():
    """Return f(changes): a spec with verl's defaults."""

    def build(**changes):
        fields = {
            "split": "train",
            "files": (),
            "tokenizer": TokenizerSpec(backend="toy", tokenizer_id=None, revision=None),
            "prompt_key": "prompt",
            "allow_plain_string_prompts": False,
            "system_prompt": None,
            "max_prompt_length": 512,
            "max_response_length": None,
            "truncation": "error",
            "filter_overlong_prompts": False,
            "answer_key": "reward_model.ground_truth",
            "answer_marker": None,
            "answer_check": "exact",
            "demonstration_key": None,
            "privileged_key": None,
            "overlap": None,
        }
        return PromptSplitSpec(**{**fields, **changes})

    return build


@pytest.fixture(scope="session")
def gsm8k(spec):
    """Return f(changes): a spec of GSM8K's own columns."""
    return lambda **changes: spec(**{**GSM8K, **changes})


@pytest.fixture
def jsonl(tmp_path):
    """Return f(rows, name): a JSON-lines file."""

    def write(rows, name="prompts.jsonl"):
        path = tmp_path / name
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return path

    return write


@pytest.fixture
def parquet(tmp_path):
    """Return f(rows, name): a Parquet file in row groups of three."""

    def write(rows, name="prompts.parquet"):
        path = tmp_path / name
        pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=3)
        return path

    return write
