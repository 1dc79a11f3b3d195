import pytest

from core.selection.gate import is_qualified


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({}, False),
        ({"policy_sensitive": True}, True),
        ({"policy_sensitive": False}, False),
        ({"policy_gate_qualified": True}, True),
        ({"policy_gate_qualified": False, "policy_sensitive": True}, False),
        ({"policy_gate_qualified": True, "policy_sensitive": False}, True),
        ({"policy_sensitive": "true"}, False),
        ({"policy_gate_qualified": None, "policy_sensitive": True}, False),
    ],
)
def test_only_a_true_flag_qualifies_and_the_verifier_s_verdict_comes_first(metadata, expected):
    assert is_qualified(metadata) is expected
