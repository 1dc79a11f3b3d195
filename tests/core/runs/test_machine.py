import json
import os
import platform
from pathlib import Path

import pytest

from core.runs.facts import measurement_facts
from core.runs.machine import describe_gpu, describe_machine

NAMES = {
    "cpu_count",
    "git_commit",
    "git_dirty",
    "gpu",
    "machine",
    "os",
    "os_release",
    "packages",
    "platform",
    "processor_family",
    "python_implementation",
    "python_version",
    "tracked_env_vars",
}


@pytest.fixture
def driver(tmp_path):
    card = tmp_path / "gpus" / "0000:17:00.0"
    card.mkdir(parents=True)
    (tmp_path / "version").write_text(
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.86.15  Thu Jan 23 2025\n"
    )
    (card / "information").write_text(
        "Model: \t\t NVIDIA H200\nIRQ:   \t\t 1\nGPU UUID: \t GPU-1b2c3d4e-secret\n"
    )
    return tmp_path


def test_only_what_the_list_allows_is_told(monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_secretsecretsecret")
    found = describe_machine()
    assert set(found) == NAMES
    text = json.dumps(found)
    assert "hf_secret" not in text
    assert platform.node() not in text.replace("Linux", "") or len(platform.node()) < 4
    home = str(Path.home())
    assert home == "/" or home not in text


def test_driver_and_card_are_read_without_a_package_and_without_the_serial_number(driver):
    found = describe_gpu(driver)
    assert found == {
        "available": True,
        "count": 1,
        "names": ["NVIDIA H200"],
        "driver_version": "570.86.15",
    }


def test_a_machine_without_a_driver_has_no_gpu(tmp_path):
    assert describe_gpu(tmp_path / "none")["available"] is False


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (":4096:8", ":4096:8"),
        ("0,1", "0,1"),
        ("GPU-1b2c3d4e", "set"),
        ("/home/ann", "set"),
        ("expandable_segments:True", "expandable_segments:True"),
    ],
)
def test_a_variable_that_is_no_plain_setting_is_not_told(monkeypatch, value, shown):
    monkeypatch.setattr(os, "environ", {"CUDA_VISIBLE_DEVICES": value, "HOME": "/home/ann"})
    assert describe_machine()["tracked_env_vars"] == {"CUDA_VISIBLE_DEVICES": shown}


@pytest.mark.parametrize(
    ("device", "has_gpu", "cpu", "cuda"),
    [
        ("cpu", True, "measured", "not_measured_run_used_cpu"),
        ("cpu", False, "measured", "not_run_no_cuda"),
        ("cuda:NVIDIA H200", True, "not_measured", "measured"),
        (None, True, "not_measured", "not_measured_run_used_cpu"),
    ],
)
def test_a_gpu_that_was_not_used_measures_nothing(device, has_gpu, cpu, cuda):
    """The first caveat of 000: a CPU run on a machine with a GPU."""
    found = measurement_facts(device, {"available": has_gpu})
    assert (found["cpu_metrics"], found["cuda_metrics"]) == (cpu, cuda)
