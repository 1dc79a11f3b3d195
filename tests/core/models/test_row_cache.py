from torch import nn

from core.models.row_cache import cache_argument


def test_the_cache_has_two_names():
    class Old(nn.Module):
        def forward(self, past_key_values): ...

    class New(nn.Module):
        def forward(self, cache): ...

    assert cache_argument(Old()) == "past_key_values"
    assert cache_argument(New()) == "cache"
