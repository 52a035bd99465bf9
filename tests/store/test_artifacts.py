"""Artifacts as files: there and back, layout, limits, what is refused."""

import asyncio
import os
import stat
import time

import pytest

from agent_kernel.errors import ArtifactNotFound, StoreError
from agent_kernel.protocol.messages import Artifact
from agent_kernel.store.artifacts import Artifacts


def in_store(main, folder=None, **limits):
    async def whole():
        async with Artifacts.open(folder, **limits) as artifacts:
            return await main(artifacts)

    return asyncio.run(whole())


@pytest.mark.parametrize(
    ("data", "media_type"),
    [
        ("", "text/plain"),
        ("plain", "text/plain"),
        ("é\r\n\x00😀\n", "text/plain"),
        ('{"a": 1}', "application/json"),
        (b"", "image/png"),
        (bytes(range(256)) * 9_000, "application/octet-stream"),
        ("x" * 3_000_000, "text/csv"),
    ],
    ids=["empty text", "ascii", "line ends, NUL, emoji", "JSON", "no bytes", "all bytes", "more than a chunk"],
)
def test_there_and_back(tmp_path, data, media_type):
    async def main(artifacts):
        kept = await artifacts.put(data, media_type=media_type)
        assert kept.media_type == media_type
        assert kept.size == len(data.encode() if isinstance(data, str) else data)
        assert await artifacts.slice(kept, 1, 4) == data[1:4]
        assert await artifacts.slice(kept, 2) == data[2:]
        return await artifacts.read(kept)

    assert in_store(main, tmp_path) == data


def test_equal_content_is_one_file_that_nobody_else_can_read(tmp_path):
    async def main(artifacts):
        one, two = await artifacts.put("same"), await artifacts.put("same", handle="r7")
        assert one.hash == two.hash
        assert two.handle == "r7"

    in_store(main, tmp_path)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) == 1
    assert stat.S_IMODE(files[0].stat().st_mode) == 0o400
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o700 for path in tmp_path.rglob("*") if path.is_dir())


def test_nothing_touches_the_disk_before_the_first_use(tmp_path):
    Artifacts.open(tmp_path / "new")
    assert list(tmp_path.iterdir()) == []


def test_a_temporary_folder_goes_at_close():
    paths = []

    async def main(artifacts):
        await artifacts.put("x")
        paths.append(artifacts._root())  # where it is, is nobody's business but this test's

    in_store(main)
    assert not paths[0].exists()


@pytest.mark.parametrize("bad", ["sha256:../../etc/passwd", "sha256:" + "g" * 64, "../x", "", "sha256:" + "a" * 63])
def test_a_forged_hash_reads_nothing(tmp_path, bad):
    async def main(artifacts):
        await artifacts.put("x")
        with pytest.raises(ArtifactNotFound):
            await artifacts.read(Artifact(handle="r1", hash=bad, media_type="text/plain", size=1))

    in_store(main, tmp_path)


def test_what_is_gone_is_said_to_be_gone(tmp_path):
    async def main(artifacts):
        kept = await artifacts.put("x")
        await artifacts.delete(kept)
        await artifacts.delete(kept)
        with pytest.raises(ArtifactNotFound, match="not kept any more"):
            await artifacts.read(kept)

    in_store(main, tmp_path)


def test_too_large_is_refused_without_evicting_others(tmp_path):
    async def main(artifacts):
        kept = await artifacts.put("small")
        with pytest.raises(StoreError, match="1,000 bytes"):
            await artifacts.put("x" * 5_000)
        return await artifacts.read(kept)

    assert in_store(main, tmp_path, max_result_bytes=1_000) == "small"
    assert len([path for path in tmp_path.rglob("*") if path.is_file()]) == 1


def test_the_oldest_go_first_and_a_new_one_never(tmp_path):
    async def main(artifacts):
        kept = [await artifacts.put(f"{number}" * 400) for number in range(5)]
        there = []
        for each in kept:
            try:
                await artifacts.read(each)
            except ArtifactNotFound:
                continue
            there.append(each)
        assert there == kept[-2:]
        big = await artifacts.put("b" * 990)
        assert await artifacts.read(big) == "b" * 990

    in_store(main, tmp_path, max_bytes=1_000)


def test_old_files_go_at_the_first_write(tmp_path):
    async def write(artifacts):
        return await artifacts.put("old")

    async def again(artifacts):
        await artifacts.put("new")
        with pytest.raises(ArtifactNotFound):
            await artifacts.read(old)

    old = in_store(write, tmp_path)
    [path] = [path for path in tmp_path.rglob("*") if path.is_file()]
    long_ago = time.time() - 3 * 86_400
    os.utime(path, (long_ago, long_ago))
    in_store(again, tmp_path, max_age_days=2)


def test_a_file_in_the_folders_place_is_a_clear_error(tmp_path):
    (tmp_path / "file").write_text("x")

    async def main(artifacts):
        with pytest.raises(StoreError, match="could not be kept"):
            await artifacts.put("x")

    in_store(main, tmp_path / "file")


@pytest.mark.parametrize("limits", [{"max_result_bytes": 0}, {"max_bytes": -1}, {"max_age_days": 0}])
def test_limits_are_checked(limits):
    with pytest.raises(ValueError, match=next(iter(limits))):
        Artifacts.open(None, **limits)


def test_io_runs_off_the_event_loop(tmp_path):
    import threading

    async def main(artifacts):
        names = []

        class Spy(str):
            __slots__ = ()

            def __getitem__(self, key):
                names.append(threading.current_thread().name)
                return str.__getitem__(self, key)

        await artifacts.put(Spy("text"))
        return names

    assert all(name.startswith("agent-kernel-artifacts") for name in in_store(main, tmp_path))
