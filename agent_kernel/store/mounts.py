"""On what kind of file system a folder lies: a pure function over the text of /proc/self/mountinfo, and the one look at the real one.

DuckDB files need locks and memory maps that network and user-space file systems do not keep; journals do without.
Format of the text: Linux, Documentation/filesystems/proc.rst, section 3.5.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

REMOTE = ("nfs", "cifs", "smb", "fuse", "9p", "afs", "ceph", "gluster", "lustre", "gpfs", "glusterfs", "beegfs", "ncpfs", "virtiofs")
_LOCAL_FUSE = ("fuseblk",)  # a local disk behind a driver in user space (NTFS, exFAT)
_OCTAL = re.compile(r"\\([0-7]{3})")


def filesystem_of(path: str, mountinfo: str) -> str | None:
    """Return the type of the file system on which an absolute path lies; None if the text names none that holds it.

    The deepest mount point that holds the path counts; of several on one point, the last, which hides the others.
    """
    best, kind = "", None
    for line in mountinfo.splitlines():
        fields, _, tail = line.partition(" - ")
        parts = fields.split(" ")
        if len(parts) < 5 or not tail:
            continue
        point = _OCTAL.sub(lambda found: chr(int(found[1], 8)), parts[4])
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, tail.split(" ")[0]
    return kind


def is_remote(kind: str | None) -> bool:
    """Tell whether a file system's type is one on which locks and shared maps are not to be trusted."""
    return kind is not None and kind not in _LOCAL_FUSE and kind.startswith(REMOTE)


def on_remote_disk(folder: Path) -> bool:
    """Look whether a folder, or the nearest parent that is there, lies on a network or user-space file system."""
    try:
        mountinfo = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return False  # no Linux: nothing to ask, and local disks are the rule
    there = next(path for path in (folder, *folder.parents) if path.exists())
    return is_remote(filesystem_of(os.path.realpath(there), mountinfo))
