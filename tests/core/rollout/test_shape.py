from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from core.errors import InputError
from core.rollout.limits import EpisodeLimits
from core.rollout.shape import EngineShape


def backend(rows: int = 32, positions: int = 1024, hidden: int = 96, device: str = "cpu"):
    return SimpleNamespace(
        name="model",
        physical_rows=rows,
        max_positions=positions,
        step_positions=positions + 64,
        hidden_size=hidden,
        device=torch.device(device),
    )


def test_sizes_for_the_toy_model():
    shape = EngineShape.of(backend(), EpisodeLimits(3, 40, 320))
    assert shape == EngineShape(
        rows=32,
        width=384,
        group=1,
        block=32,
        row_counts=(8, 16, 24),
        widths=(64, 128, 192, 256, 320),
    )


def test_sizes_for_a_wide_model_leave_nothing_to_narrow():
    shape = EngineShape.of(backend(rows=16, hidden=576), EpisodeLimits(3, 40, 300))
    assert (shape.group, shape.row_counts, shape.widths) == (1, (8,), ())


def test_an_accelerator_takes_all_rows_and_slots_in_every_step():
    shape = EngineShape.of(backend(device="cuda"), EpisodeLimits(3, 40, 320))
    assert shape == EngineShape(rows=32, width=384, group=32, block=64)


def test_long_transcripts_check_few_widths():
    shape = EngineShape.of(backend(positions=32_768), EpisodeLimits(3, 40, 16_384))
    assert len(shape.widths) == 15
    assert {width % 64 for width in shape.widths} == {0}


@given(st.integers(1, 40), st.integers(16, 600), st.integers(0, 40))
def test_every_position_lies_in_cache_and_context(rows: int, total: int, room: int):
    shape = EngineShape.of(backend(rows, total + room), EpisodeLimits(3, 40, total))
    assert shape.rows % shape.group == 0
    assert shape.block == 32
    last_position = total - 1 + shape.block - 1
    assert last_position < min(shape.width, total + room + 64)
    assert shape.width % 64 == 0
    assert shape.width - last_position <= 64
    assert all(shape.group <= count < rows for count in shape.row_counts)


def test_a_transcript_longer_than_the_context_is_refused_up_front():
    with pytest.raises(InputError, match="max_total_tokens 513 exceeds the 512 positions"):
        EngineShape.of(backend(positions=512), EpisodeLimits(3, 40, 513))
