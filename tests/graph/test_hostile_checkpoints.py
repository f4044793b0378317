"""Folders that are no checkpoints, by accident or by design: one error that names the file, and nothing is read."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from graph.checkpoint_files import entries, header_of, names_by_file, small, write_bytes, write_checkpoint, write_file
from graph.expansion import facts

from precc.cli import main
from precc.graph import ModelError, read_model
from precc.graph.config import describe
from precc.graph.shards import INDEX, MAX_INDEX_BYTES

SHARD = "model-00002-of-00003.safetensors"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A small checkpoint of three shards."""
    return checkpoint(tmp_path / "model")


def checkpoint(folder: Path) -> Path:
    """A small checkpoint of three shards, without an index."""
    config = small(facts("qwen3-8b")[0])
    folder.parent.mkdir(parents=True, exist_ok=True)
    return write_checkpoint(folder, config, entries(describe(config, "qwen3-8b").graph("qwen3-8b")))


def refused(folder: Path) -> ModelError:
    """What is said of a folder, on one line."""
    with pytest.raises(ModelError) as caught:
        read_model(str(folder))
    assert "\n" not in caught.value.message
    assert caught.value.help
    return caught.value


# --- what stands in the place of a shard -------------------------------------------------------------


def _folder(path: Path) -> None:
    path.mkdir()


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _socket(path: Path) -> None:
    place = os.open(path.parent, os.O_RDONLY)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"/proc/self/fd/{place}/{path.name}")
    os.close(place)


def _device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def _dangling(path: Path) -> None:
    path.symlink_to("nowhere.safetensors")


def _loop(path: Path) -> None:
    path.symlink_to(path.name)


@pytest.mark.parametrize(
    "make, message",
    [
        (_folder, "is a folder, no file"),
        (_pipe, "is a named pipe, no file"),
        (_socket, "is a socket, no file"),
        (_device, "is a device, no file"),
        (_dangling, "links to nowhere.safetensors, which is not there"),
        (_loop, "cannot be read: Too many levels of symbolic links"),
    ],
)
@pytest.mark.parametrize("name", [SHARD, INDEX, "config.json"])
def test_what_is_no_file_is_not_opened(folder: Path, make: Callable[[Path], None], message: str, name: str) -> None:
    """A shard, the index, the configuration; reading a named pipe would wait for ever, a device never end."""
    (folder / name).unlink(missing_ok=True)
    make(folder / name)
    assert refused(folder).message == f"{folder / name} {message}"


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_shard_that_may_not_be_read_is_named(folder: Path) -> None:
    """With what the system says."""
    (folder / SHARD).chmod(0)
    assert refused(folder).message == f"{folder / SHARD} cannot be read: Permission denied"


def test_a_single_file_is_looked_at_as_a_shard_is(folder: Path) -> None:
    """Given by its own name."""
    (folder / SHARD).unlink()
    _pipe(folder / SHARD)
    assert "is a named pipe" in refused(folder / SHARD).message


# --- links -------------------------------------------------------------------------------------------


def cached(root: Path, revision: str = "a1b2c3") -> Path:
    """A checkpoint as Hugging Face caches it: a snapshot of links to blobs."""
    repository = root / "hub" / "models--org--name"
    files = checkpoint(root / "fetched")
    snapshot, blobs = repository / "snapshots" / revision, repository / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    for at, file in enumerate(sorted(files.iterdir())):
        file.rename(blobs / f"{at:064}")
        (snapshot / file.name).symlink_to(f"../../blobs/{at:064}")
    return snapshot


def test_a_snapshot_of_a_cache_is_a_checkpoint(tmp_path: Path) -> None:
    """Its links lead to the blobs of the same repository, from wherever the folder itself is linked to."""
    snapshot = cached(tmp_path)
    assert read_model(str(snapshot)).layers == 3
    (tmp_path / "link").symlink_to(snapshot)
    assert read_model(str(tmp_path / "link")).layers == 3


def test_links_within_the_folder_are_followed(folder: Path) -> None:
    """To a sub-folder as well."""
    (folder / "parts").mkdir()
    (folder / SHARD).rename(folder / "parts" / "two.safetensors")
    (folder / SHARD).symlink_to("parts/two.safetensors")
    assert read_model(str(folder)).layers == 3


@pytest.mark.parametrize("target", ["../other.safetensors", "{root}/other.safetensors", "../model2/other.safetensors"])
def test_a_link_that_leaves_the_folder_is_refused(folder: Path, target: str) -> None:
    """The error says where it leads, where it may lead, and what to do."""
    outside = folder.parent / target.removeprefix("../").format(root=folder.parent)
    outside.parent.mkdir(exist_ok=True)
    (folder / SHARD).rename(outside)
    (folder / SHARD).symlink_to(target.format(root=folder.parent))
    found = refused(folder)
    assert found.message == f"{folder / SHARD} is a link to {outside}, outside of {folder}"
    assert "`blobs` of the same repository" in found.help


@pytest.mark.parametrize(
    "name, shards", [("config.json", True), ("config.json", False), ("hf_quant_config.json", False)]
)
def test_a_configuration_that_leaves_the_folder_is_refused(folder: Path, name: str, shards: bool) -> None:
    """As a shard is, in the same words, with and without weights beside it; a link within the folder is followed."""
    for shard in [] if shards else [*folder.glob("*.safetensors")]:
        shard.unlink()
    inside = folder / "kept.json"
    inside.write_text((folder / "config.json").read_text())
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to("kept.json")
    assert read_model(str(folder)).layers == 3
    outside = folder.parent / "kept.json"
    inside.rename(outside)
    (folder / name).unlink()
    (folder / name).symlink_to("../kept.json")
    found = refused(folder)
    assert found.message == f"{folder / name} is a link to {outside}, outside of {folder}"
    assert "`blobs` of the same repository" in found.help


def test_a_link_into_another_repository_of_the_cache_is_refused(tmp_path: Path) -> None:
    """A repository holds its own blobs."""
    snapshot = cached(tmp_path)
    other = tmp_path / "hub" / "models--org--other" / "blobs" / "x"
    other.parent.mkdir(parents=True)
    (snapshot / SHARD).resolve().rename(other)
    (snapshot / SHARD).unlink()
    (snapshot / SHARD).symlink_to(other)
    assert f"is a link to {other}, outside of {tmp_path / 'hub' / 'models--org--name'}" in refused(snapshot).message


def test_a_folder_that_is_only_called_snapshots_is_no_cache(tmp_path: Path) -> None:
    """Without blobs beside it, what is above the folder is outside."""
    folder = checkpoint(tmp_path / "snapshots" / "mine")
    (folder / SHARD).rename(tmp_path / "x.safetensors")
    (folder / SHARD).symlink_to(tmp_path / "x.safetensors")
    assert f"outside of {folder}" in refused(folder).message


# --- the index ---------------------------------------------------------------------------------------


def index(folder: Path, names: object) -> None:
    """An index of one tensor a file."""
    shown = {f"t{at}": name for at, name in enumerate(names)} if isinstance(names, list) else names
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": shown}))


def test_an_index_that_lists_the_shards_is_right(folder: Path) -> None:
    """It says nothing that the headers do not."""
    index(folder, names_by_file(folder))
    assert read_model(str(folder)).layers == 3


def test_a_tensor_that_an_index_lists_has_to_be_in_some_shard(folder: Path) -> None:
    """All shards are there, and none holds it: a cut download that was packed anew."""
    index(folder, {**names_by_file(folder), "model.layers.9.mlp.up_proj.weight": SHARD})
    found = refused(folder)
    assert found.message == f"{folder / INDEX} lists `model.layers.9.mlp.up_proj.weight`, which no shard holds"
    assert "write the index anew" in found.help


@pytest.mark.parametrize("name", ["/etc/passwd", "../model/x.safetensors", "..", "", "sub/x.safetensors", "a/../b"])
def test_a_path_in_an_index_that_leaves_the_folder_is_refused(folder: Path, name: str) -> None:
    """Whether or not it leads to a file."""
    index(folder, [SHARD, name])
    found = refused(folder)
    assert found.message == f"{folder / INDEX} lists `{name}`, a path that leaves the folder"


def test_shards_that_an_index_lists_have_to_be_there(folder: Path) -> None:
    """The first few are named, the rest are counted."""
    index(folder, [f"model-{at:05}-of-00009.safetensors" for at in range(1, 10)])
    assert refused(folder).message == (
        f"{folder} lacks `model-00001-of-00009.safetensors`, `model-00002-of-00009.safetensors`, "
        "`model-00003-of-00009.safetensors` and 6 more, which its index lists"
    )


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "is not valid JSON"),
        ("{", "is not valid JSON"),
        ("[" * 100_000, "is not valid JSON"),
        ("[]", "has no `weight_map`"),
        ("{}", "has no `weight_map`"),
        ('{"weight_map": 7}', "has no `weight_map`"),
        ('{"weight_map": {"a": 7}}', "has no `weight_map`"),
        ('{"weight_map": {"a": ["b"]}}', "has no `weight_map`"),
    ],
    ids=["empty", "cut", "nested", "list", "object", "number", "numbers", "lists"],
)
def test_an_index_that_is_none_is_refused(folder: Path, text: str, message: str) -> None:
    """Not JSON, or not from names to files."""
    (folder / INDEX).write_text(text)
    found = refused(folder).message
    assert found.startswith(f"{folder / INDEX} {message}")


def test_an_index_of_a_billion_entries_is_not_read(folder: Path) -> None:
    """Its size is looked at first: the file here has no bytes on the disk."""
    with (folder / INDEX).open("wb") as file:
        file.truncate(10**11)
    assert MAX_INDEX_BYTES < 10**11
    assert refused(folder).message == f"{folder / INDEX} is 100,000,000,000 bytes, more than any checkpoint's index"


# --- names -------------------------------------------------------------------------------------------


def test_what_a_name_holds_does_not_reach_the_terminal(folder: Path) -> None:
    """Escape sequences and line ends in the name of a tensor are shown as such."""
    write_file(folder / "more.safetensors", *header_of({"a\x1b[2Jb\nc.weight": ("BF16", (8,))}))
    assert r"`a\x1b[2Jb\nc.weight` is no tensor" in refused(folder).message


def test_a_name_that_stands_in_a_header_a_hundred_thousand_times_is_told_once(folder: Path) -> None:
    """Looking for it takes one pass."""
    entry = json.dumps({"dtype": "BF16", "shape": [4], "data_offsets": [0, 8]})
    header = "{" + ",".join(f'"t{at % 50_000}": {entry}' for at in range(100_000)) + "}"
    write_bytes(folder / SHARD, header.encode(), 8)
    assert refused(folder).message == f"{folder / SHARD}: its header lists `t0` twice"


def test_a_refused_checkpoint_is_a_mistake_of_the_command(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`precc plan` says it on one line with what to do, and exits with 2."""
    (folder / SHARD).unlink()
    _pipe(folder / SHARD)
    assert main(["plan", "nvfp4_rl", "--model", str(folder)]) == 2
    said = capsys.readouterr().err
    assert f"{folder / SHARD} is a named pipe, no file" in said
    assert "Traceback" not in said
