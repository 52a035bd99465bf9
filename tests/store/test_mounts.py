"""File systems, told from recorded texts of /proc/self/mountinfo."""

import pytest

from agent_kernel.store.mounts import filesystem_of, is_remote, on_remote_disk

RECORDED = r"""
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw,errors=remount-ro
23 22 0:21 / /proc rw,nosuid,nodev,noexec,relatime shared:12 - proc proc rw
30 22 0:26 / /run rw,nosuid,nodev shared:14 - tmpfs tmpfs rw,size=8g
41 22 0:45 / /home rw,relatime shared:20 - nfs4 server:/export/home rw,vers=4.2,rsize=1048576,hard,proto=tcp
42 41 8:2 / /home/anna/scratch rw,relatime shared:21 - xfs /dev/sdb1 rw
43 42 0:50 / /home/anna/scratch/old rw,relatime - nfs server:/export/old rw,vers=3,nolock
44 22 0:51 / /mnt/share rw,relatime shared:30 - cifs //server/share rw,vers=3.1.1,username=anna
45 22 0:52 / /mnt/remote rw,nosuid,nodev,relatime shared:31 - fuse.sshfs anna@host:/data rw,user_id=1000
46 22 8:17 / /media/stick rw,nosuid,nodev,relatime shared:32 - fuseblk /dev/sdc1 rw,user_id=0,allow_other
47 22 0:53 / /host rw,relatime - 9p hostshare rw,trans=virtio
48 22 0:54 / /merged rw,relatime - overlay overlay rw,lowerdir=/l,upperdir=/u,workdir=/w
49 22 8:1 /var/data /bind rw,relatime shared:1 - ext4 /dev/sda1 rw
50 22 0:45 /anna /data/from\040home\134x rw,relatime - nfs4 server:/export/home rw
51 22 0:55 / /mnt/twice rw,relatime - nfs4 server:/a rw
52 51 8:3 / /mnt/twice rw,relatime - ext4 /dev/sdd1 rw
53 22 0:56 / /mnt/vm rw,relatime - virtiofs tag rw
54 22 0:57 / /mnt/gvfs rw,relatime shared:3 master:1 propagate_from:2 - fuse.gvfsd-fuse gvfsd-fuse rw
55 22 0:58 / /mnt/lustre rw - lustre mgs@tcp:/fs rw
broken line
56 22 0:59 / /mnt/half
"""


@pytest.mark.parametrize(
    ("path", "kind", "remote"),
    [
        ("/", "ext4", False),
        ("/srv/x", "ext4", False),
        ("/run/x", "tmpfs", False),
        ("/home", "nfs4", True),
        ("/home/anna/.local/share/agent_kernel", "nfs4", True),
        ("/homework", "ext4", False),
        ("/home/anna/scratch", "xfs", False),
        ("/home/anna/scratch/deep/er", "xfs", False),
        ("/home/anna/scratch/old/x", "nfs", True),
        ("/mnt/share/x", "cifs", True),
        ("/mnt/remote", "fuse.sshfs", True),
        ("/media/stick/x", "fuseblk", False),
        ("/host/x", "9p", True),
        ("/merged/x", "overlay", False),
        ("/bind/x", "ext4", False),
        ("/data/from home\\x/y", "nfs4", True),
        ("/mnt/twice/x", "ext4", False),
        ("/mnt/vm/x", "virtiofs", True),
        ("/mnt/gvfs/x", "fuse.gvfsd-fuse", True),
        ("/mnt/lustre", "lustre", True),
        ("/mnt/half/x", "ext4", False),
    ],
)
def test_what_a_path_lies_on(path, kind, remote):
    assert filesystem_of(path, RECORDED) == kind
    assert is_remote(kind) is remote


def test_a_text_that_says_nothing():
    assert filesystem_of("/x", "") is None
    assert not is_remote(None)


def test_names_that_only_begin_alike_are_local():
    assert not is_remote("ext4")
    assert not is_remote("btrfs")
    assert is_remote("smb3")
    assert is_remote("fuse")


def test_a_folder_that_is_not_there_yet_is_judged_by_its_nearest_parent(tmp_path, small_disk):
    assert not on_remote_disk(tmp_path / "a" / "b")
    assert not on_remote_disk(small_disk(64) / "x" / "y")
