import pytest
import torch

from core.losses.targets import BucketTargets, ExactTargets, LogitTargets, SampledTargets

ROWS = torch.arange(5.0)
IDS_NK = torch.arange(10).reshape(5, 2)
ALL = [
    LogitTargets(ROWS[:, None]),
    ExactTargets(ROWS[:, None], lambda hidden: hidden),
    BucketTargets(IDS_NK, IDS_NK.float(), ROWS, ROWS + 1, 2.0),
    BucketTargets(IDS_NK, IDS_NK.float(), ROWS),
    SampledTargets(IDS_NK[:, 0], ROWS, ROWS + 1),
]


@pytest.mark.parametrize("targets", ALL)
def test_a_slice_holds_the_same_rows_in_the_same_storage(targets):
    part = targets.slice(1, 4)
    assert len(targets) == 5
    assert len(part) == 3
    assert type(part) is type(targets)
    for name, whole in vars(targets).items():
        piece = getattr(part, name)
        if not isinstance(whole, torch.Tensor):
            assert piece == whole
            continue
        assert torch.equal(piece, whole[1:4])
        assert piece.untyped_storage().data_ptr() == whole.untyped_storage().data_ptr()
