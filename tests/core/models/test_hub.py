"""A Hub id is a commit, nothing pickled is fetched, and an offline run opens no socket."""

import os
import shutil
import subprocess
import sys
from fnmatch import fnmatch
from importlib import import_module
from pathlib import Path

import pytest
from huggingface_hub import get_session

from core.errors import ModelSourceError
from core.models import hub
from core.models.hub import ASK_S, SWITCHES, snapshot, stay_offline, without_network
from core.models.identity import model_digest, resolve, resolve_tokenizer

REPO = Path(__file__).resolve().parents[3]
COMMIT = "0123456789abcdef0123456789abcdef01234567"
NAME = "some-owner/tiny"

BLOCKED = """
import socket, sys

def blocked(*args, **kwargs):
    print("a socket was opened:", args[-1], file=sys.stderr)
    sys.stderr.flush()
    import os
    os._exit(7)

socket.socket.connect = socket.socket.connect_ex = blocked
socket.getaddrinfo = socket.create_connection = socket.gethostbyname = blocked
"""
LOAD = """
from core.models.building import build_model, place
from core.recipe.loading import load_text
from core.recipe.model_steps import student_spec
from flows.runs.sources import locate_models

loaded = load_text(sys.argv[1], sys.argv[2:])
recipe, runtime = locate_models(loaded.recipe, loaded.runtime)
spec = student_spec(recipe)
model = build_model(spec.model, place(runtime), seed=1, lora=spec.lora)
print(recipe.models.student.model_id, len(model.trainable()), model.tokenizer.encode("too"))
"""
RECIPE = """
models: {{backend: hf, student: {{{0}}}, teacher: {{{0}}}}}
environment: {{name: calculator}}
"""


@pytest.fixture(autouse=True)
def forgetful():
    """Let no test profit from what another one found."""
    hub._snapshot.cache_clear()


@pytest.fixture
def answering(monkeypatch):
    """A Hub that is there."""
    monkeypatch.setattr("huggingface_hub.HfApi.model_info", lambda *_, **__: None)


@pytest.fixture
def cache(tiny_llama, tmp_path):
    """A cache of the Hub that holds one commit of one model."""
    holder = tmp_path / "hub" / f"models--{NAME.replace('/', '--')}"
    shutil.copytree(tiny_llama, holder / "snapshots" / COMMIT)
    (holder / "refs").mkdir()
    (holder / "refs" / "main").write_text(COMMIT)
    return tmp_path / "hub"


@pytest.fixture
def run(cache):
    """Return f(model, overrides): what a process without a network says."""

    def start(model, *words):
        environment = {**os.environ, "HF_HUB_CACHE": str(cache), "PYTHONPATH": str(REPO)}
        for switch in SWITCHES:
            environment.pop(switch, None)
        command = [sys.executable, "-c", BLOCKED + LOAD, RECIPE.format(model), *words]
        return subprocess.run(command, check=False, capture_output=True, text=True, env=environment)

    return start


def test_an_offline_run_loads_a_directory_and_a_cached_id_without_a_socket(run, tiny_llama):
    outputs = []
    for model in (f"model_id: {tiny_llama}", f"model_id: {NAME}, revision: '{COMMIT}'"):
        done = run(model, "runtime.offline=true", "models.student.lora.r=2")
        assert done.returncode == 0, done.stderr
        outputs.append(done.stdout)
    assert outputs[0] == outputs[1]
    assert outputs[0].startswith(f"sha256:{model_digest(tiny_llama)} 28 ")


def test_a_directory_is_loaded_without_a_socket_in_any_run(run, tiny_llama):
    done = run(f"model_id: {tiny_llama}")
    assert done.returncode == 0, done.stderr


def test_the_block_of_these_tests_does_block(run):
    absent = f"model_id: nobody/nothing, revision: '{COMMIT}'"
    assert run(absent).returncode == 7
    offline = run(absent, "runtime.offline=true")
    assert offline.returncode == 1
    assert f"nobody/nothing@{COMMIT} is not on this disk" in offline.stderr


def test_a_cached_commit_is_found_offline(cache, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(cache))
    found = resolve(NAME, revision=COMMIT, offline=True)
    assert found.path.name == COMMIT
    assert found.digest == model_digest(cache.parent / "hub" / found.path.relative_to(cache))


def test_what_is_not_cached_is_refused_by_identity_and_the_command_that_fetches_it(
    cache, monkeypatch
):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(cache))
    other = COMMIT[::-1]
    with pytest.raises(ModelSourceError) as caught:
        resolve(NAME, revision=other, offline=True)
    first, second = str(caught.value).splitlines()
    assert first.startswith(f"{NAME}@{other} is not on this disk")
    assert f"`hf download {NAME} --revision {other} --exclude" in second


def test_half_a_snapshot_is_refused_by_identity_too(cache, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(cache))
    next(cache.rglob("model.safetensors")).unlink()
    with pytest.raises(ModelSourceError, match=rf"{NAME}@{COMMIT}: .*\n.*hf download {NAME}"):
        resolve(NAME, revision=COMMIT, offline=True)


@pytest.mark.parametrize("offline", [True, False])
@pytest.mark.parametrize("revision", [None, "main", "v1.0", COMMIT[:12], COMMIT.upper()])
def test_an_id_that_is_not_pinned_is_refused(revision, offline):
    with pytest.raises(
        ModelSourceError, match=r"as a Hub id it has .*\n.*or give the commit, 40 hexa"
    ):
        snapshot(NAME, revision, ["*"], offline=offline)


def test_an_id_that_no_hub_can_have_is_refused_like_one_that_is_not_there():
    with pytest.raises(ModelSourceError, match=r"owner/na--me@0{40} is not on this disk"):
        snapshot("owner/na--me", "0" * 40, ["*"], offline=False)


def test_an_online_run_asks_for_that_commit_and_for_nothing_pickled(
    tiny_llama, monkeypatch, answering
):
    asked = {}

    def download(name, **options):
        asked.update(options, name=name)
        return str(tiny_llama)

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    found = resolve(NAME, revision=COMMIT)
    assert found.digest == model_digest(tiny_llama)
    assert (asked["name"], asked["revision"]) == (NAME, COMMIT)
    assert asked["local_files_only"] is False
    wanted = asked["allow_patterns"]

    def fetched(file):
        return any(fnmatch(file, pattern) for pattern in wanted)

    needed = ("config.json", "tokenizer.json", "model-00001-of-00002.safetensors")
    assert all(fetched(file) for file in needed)
    pickled = ("pytorch_model.bin", "model.pt", "weights.pth", "training_args.bin", "data.pkl")
    assert not any(fetched(file) for file in (*pickled, "modeling_x.py", "model.gguf"))
    resolve(NAME, revision=COMMIT, trust_remote_code=True)
    assert any(fnmatch("modeling_x.py", pattern) for pattern in asked["allow_patterns"])


def test_a_tokenizer_of_its_own_is_fetched_without_weights(tiny_llama, monkeypatch, answering):
    asked = []
    monkeypatch.setattr(
        "huggingface_hub.snapshot_download",
        lambda name, *, allow_patterns, **_: asked.extend(allow_patterns) or str(tiny_llama),
    )
    assert resolve_tokenizer(NAME, revision=COMMIT).digest != model_digest(tiny_llama)
    assert not any(fnmatch("model.safetensors", pattern) for pattern in asked)


@pytest.mark.parametrize("kind", ["ConnectError", "ReadTimeout", None])
def test_a_hub_out_of_reach_is_asked_once_and_the_cache_answers(cache, monkeypatch, kind):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(cache))
    library = import_module(type(get_session()).__module__.partition(".")[0])
    failure, asked = (ConnectionError if kind is None else getattr(library, kind)), []

    def silent(api, name, *, revision, timeout):
        asked.append((name, revision, timeout))
        raise failure("Name or service not known")

    monkeypatch.setattr("huggingface_hub.HfApi.model_info", silent)
    assert resolve(NAME, revision=COMMIT).path.name == COMMIT
    assert resolve(NAME, revision=COMMIT).path.name == COMMIT
    assert asked == [(NAME, COMMIT, ASK_S)]
    other = COMMIT[::-1]
    for times in (2, 3):  # a failure is not remembered: the network may come back
        with pytest.raises(ModelSourceError, match=r"from the Hub: Name or service not known"):
            resolve(NAME, revision=other)
        assert len(asked) == times


def test_a_snapshot_that_was_cleaned_up_is_looked_for_again(cache, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(cache))
    assert resolve(NAME, revision=COMMIT, offline=True).path.name == COMMIT
    shutil.rmtree(cache)
    with pytest.raises(ModelSourceError, match="is not on this disk"):
        resolve(NAME, revision=COMMIT, offline=True)


def test_the_client_is_offline_inside_and_as_before_outside(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    from huggingface_hub import constants

    with without_network():
        assert constants.HF_HUB_OFFLINE is True
    assert constants.HF_HUB_OFFLINE is False


def test_an_offline_process_stays_offline(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_TELEMETRY", False)
    for switch in SWITCHES:
        monkeypatch.setenv(switch, "0")
    stay_offline()
    from huggingface_hub import constants

    assert constants.HF_HUB_OFFLINE is True
    assert all(os.environ[switch] == "1" for switch in SWITCHES)
