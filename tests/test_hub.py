import json
import os
import re
import subprocess
import sys
import threading
from hashlib import sha1
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from helpers import hub
from helpers.errors import HookbookError

# What each repository of the stand-in hub holds
CONFIG = {"config.json": b"{}", "tokenizer.json": b"{}", "README.md": b"text"}
WHOLE = CONFIG | {"model.safetensors": b"weights", "pytorch_model.bin": b"pickle", "onnx/model.safetensors": b"other"}
SHARDS = CONFIG | {
    "model-00001-of-00002.safetensors": b"one",
    "model-00002-of-00002.safetensors": b"two",
    "consolidated.safetensors": b"the same again",
    "model.safetensors.index.json": json.dumps(
        {"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}
    ).encode(),
}
REPOS = {
    "lab/whole": WHOLE,
    "lab/shards": SHARDS,
    "lab/pickles": CONFIG | {"pytorch_model.bin": b"pickle"},
    "lab/gated": WHOLE,
    "lab/diffusion": {"model.safetensors": b"weights"},
}


class StandIn(BaseHTTPRequestHandler):
    """As much of the hub as listing and downloading files takes."""

    def do_GET(self):
        self.server.asked.append(self.path)
        path = self.path.split("?")[0]
        name = next((repo for repo in REPOS if re.match(f"/(api/models/)?{repo}(/|$)", path)), None)
        if name is None:
            return self.reply(404, {}, error="RepoNotFound")
        commit, files = sha1(name.encode()).hexdigest(), REPOS[name]
        revision = re.search(r"/(?:revision|tree|resolve)/([^/]+)", path)
        if revision and revision[1] not in ("main", commit):
            return self.reply(404, {}, error="RevisionNotFound")
        if "/resolve/" in path:
            if name == "lab/gated":
                return self.reply(403, {}, error="GatedRepo")
            data = files[path.split("/resolve/")[1].split("/", 1)[1]]
            return self.reply(200, data, ETag=f'"{sha1(data).hexdigest()}"', **{"X-Repo-Commit": commit})
        if "/tree/" in path:
            entries = [
                {"type": "file", "path": p, "size": len(d), "oid": sha1(d).hexdigest()} for p, d in files.items()
            ]
            return self.reply(200, entries)
        siblings = [{"rfilename": p, "size": len(d), "blobId": sha1(d).hexdigest()} for p, d in files.items()]
        return self.reply(200, {"id": name, "modelId": name, "sha": commit, "siblings": siblings})

    do_HEAD = do_GET

    def reply(self, status, body, error=None, **headers):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for key, value in (
            headers | {"Content-Length": len(data)} | ({"X-Error-Code": error} if error else {})
        ).items():
            self.send_header(key, str(value))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data)

    def log_message(self, *_):
        pass


ASK = """
import json, sys
from helpers import hub
from helpers.errors import HookbookError
known = ["EleutherAI/pythia-70m", "lab/whole", "gpt2"]
for name, revision, weights in json.loads(sys.argv[1]):
    try:
        answer = str(hub.hub_folder(name, revision, known=known, weights=weights))
    except HookbookError as error:
        answer = f"HookbookError: {error}"
    print("ANSWER", answer, flush=True)
"""


def ask(endpoint, cache, *questions, **environment):
    """hub_folder in a process of its own, since the hub's client reads its address when it is imported."""
    env = (
        os.environ | {"HF_ENDPOINT": endpoint, "HF_HOME": str(cache), "HF_HUB_DISABLE_PROGRESS_BARS": "1"} | environment
    )
    env.pop("HF_HUB_CACHE", None)
    full = [[*question, None, True][:3] if len(question) < 3 else list(question) for question in questions]
    done = subprocess.run([sys.executable, "-c", ASK, json.dumps(full)], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [line.removeprefix("ANSWER ") for line in done.stdout.splitlines() if line.startswith("ANSWER ")]


@pytest.fixture
def server():
    with ThreadingHTTPServer(("127.0.0.1", 0), StandIn) as running:
        running.asked = []
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield running
        running.shutdown()


def test_what_the_hub_answers(server, tmp_path):
    endpoint = f"http://127.0.0.1:{server.server_port}"
    whole, shards, pickles, gated, revision, absent, other, invalid, bare = ask(
        endpoint,
        tmp_path,
        ("lab/whole",),
        ("lab/shards",),
        ("lab/pickles",),
        ("lab/gated",),
        ("lab/whole", "step3000"),
        ("lab/hole",),
        ("lab/diffusion",),
        ("no such name",),
        ("lab/pickles", None, False),
    )
    assert names(whole) == {"config.json", "tokenizer.json", "model.safetensors"}
    assert names(shards) == set(SHARDS) - {"README.md", "consolidated.safetensors"}
    assert len(hub.weight_files(hub.Path(shards))) == 2
    assert "only as pickles" in pickles
    assert "is gated: accept its licence" in gated and "hf auth login" in gated
    assert "no revision 'step3000'" in revision
    assert "no model" in absent and "did you mean lab/whole?" in absent
    assert "config.json" in other
    assert "no model" in invalid
    assert names(bare) == {"config.json", "tokenizer.json"}
    assert not any(word in path for path in server.asked for word in (".bin", "onnx", "consolidated", "README"))


def names(folder):
    return {path.name for path in hub.Path(folder).iterdir()}


def test_a_cached_model_needs_no_network_and_an_absent_one_gets_a_sentence(server, tmp_path):
    endpoint, nobody = f"http://127.0.0.1:{server.server_port}", "http://127.0.0.1:9"
    (first,) = ask(endpoint, tmp_path, ("lab/whole",))
    again, absent = ask(nobody, tmp_path, ("lab/whole",), ("pythia-70m",))
    assert again == first
    assert "the hub cannot be reached" in absent and "did you mean EleutherAI/pythia-70m?" in absent
    (told,) = ask(endpoint, tmp_path, ("lab/shards",), HF_HUB_OFFLINE="1")
    assert "HF_HUB_OFFLINE is set" in told


def test_a_half_downloaded_model_is_not_taken_for_whole(server, tmp_path):
    endpoint = f"http://127.0.0.1:{server.server_port}"
    (folder,) = ask(endpoint, tmp_path, ("lab/shards",))
    (hub.Path(folder) / "model-00002-of-00002.safetensors").unlink()
    (again,) = ask(endpoint, tmp_path, ("lab/shards",))
    assert again == folder and len(hub.weight_files(hub.Path(again))) == 2


def test_a_hub_cache_that_cannot_be_written_names_the_variable(server, tmp_path):
    (tmp_path / "file").write_text("")
    (told,) = ask(f"http://127.0.0.1:{server.server_port}", tmp_path / "file" / "below", ("lab/whole",))
    assert "HF_HOME" in told and "Cannot write" in told


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        (None, "There is no folder"),
        (["config.json", "tokenizer.json", "pytorch_model.bin"], "only as pickles"),
        (["config.json", "tokenizer.json", "weights.pth"], "only as pickles"),
        (["config.json", "tokenizer.json"], "no complete safetensors"),
        (["config.json", "tokenizer.json", "model.safetensors.index.json"], "no complete safetensors"),
        (["adapter_config.json", "adapter_model.safetensors"], "merge it"),
        (["tokenizer.json", "model.safetensors"], "has no config.json"),
        (["config.json", "model.safetensors"], "no tokenizer files"),
    ],
)
def test_local_folders_that_cannot_be_loaded(tmp_path, files, sentence):
    folder = tmp_path / "model"
    for file in files or []:
        folder.mkdir(exist_ok=True)
        (folder / file).write_text('{"weight_map": {"a": "model-1.safetensors", "b": "../outside.safetensors"}}')
    with pytest.raises(HookbookError, match=sentence):
        hub.local_folder(str(folder))


def test_shards_are_only_looked_for_in_the_folder_itself(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    for file in (tmp_path / "outside.safetensors", folder / "inside.safetensors"):
        file.write_text("")
    index = {"weight_map": {"a": "inside.safetensors", "b": "../outside.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert hub.weight_files(folder) == []
    del index["weight_map"]["b"]
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert hub.weight_files(folder) == [folder / "inside.safetensors"]


@pytest.mark.parametrize("name", ["./model", "../model", "~/model", "/models/model", "C:\\models\\model"])
def test_paths_are_told_from_names(name):
    assert hub.is_path(name)
    assert not hub.is_path("EleutherAI/pythia-70m")
    assert not hub.is_path("gpt2")
