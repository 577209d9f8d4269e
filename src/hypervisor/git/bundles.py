"""The exchange in object storage: `git/<space>/<name>/<after>.bundle`.

A bundle has everything that its refs lead to, except for what the base `after` leads to ("all":
nothing is left out). So a host may have to get that base first.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Collection, Sequence
from typing import Any

from hypervisor.core.errors import GitFailed
from hypervisor.git.exchange import base_name, fetch_refs, may_have, unreachable
from hypervisor.git.hub import Hub
from hypervisor.runs.outputs.segments import open_object_store

ALL, ENDING = "all", ".bundle"
CHUNK = 4 << 20  # bytes


class BundleExchange:
    def __init__(self, url: str, space: str) -> None:
        self.url, self._space = url, space
        self._opened: Any = None

    def put(self, hub: Hub, name: str, refs: Sequence[str], after: str = "") -> None:
        if after and not hub.git.text("rev-list", "--max-count=1", *refs, "--not", after, "--"):
            after = ""  # git makes no empty bundles
        left_out = ["--not", after] if after else []
        with tempfile.NamedTemporaryFile(dir=hub.path, prefix="bundle-") as file:
            try:
                hub.git.run("bundle", "create", "--quiet", file.name, *refs, *left_out)
            except GitFailed as error:
                raise unreachable(self.url, error.message) from error
            self._upload(file.name, f"{self._folder(name)}/{after or ALL}{ENDING}")

    def get(self, hub: Hub, name: str) -> bool:
        return self._get(hub, name, set())

    def remove(self, names: Collection[str]) -> None:
        import obstore
        from obstore.exceptions import BaseError

        try:
            if keys := [key for name in names for key in self._keys(name)]:
                obstore.delete(self._store(), keys)
        except (BaseError, OSError) as error:
            raise unreachable(self.url, error) from error

    def _get(self, hub: Hub, name: str, asked: set[str]) -> bool:
        if name in asked:
            return False
        keys = self._keys(name)
        for key in sorted(keys, reverse=True):
            after = os.path.basename(key).removesuffix(ENDING)
            known = after == ALL or hub.git.commit_of(after) is not None
            if known or self._get(hub, base_name(after), {*asked, name}):
                self._fetch(hub, name, key)
                return True
        return False

    def _fetch(self, hub: Hub, name: str, key: str) -> None:
        with tempfile.NamedTemporaryFile(dir=hub.path, prefix="bundle-") as file:
            self._download(key, file)
            try:
                lines = hub.git.text("bundle", "list-heads", file.name).splitlines()
                refs = [line.partition(" ")[2] for line in lines]
                fetch_refs(hub.git, file.name, {ref: ref for ref in refs if may_have(name, ref)})
            except GitFailed as error:
                raise unreachable(self.url, error.message) from error

    def _folder(self, name: str) -> str:
        return f"git/{self._space}/{name}"

    def _upload(self, path: str, key: str) -> None:
        import obstore
        from obstore.exceptions import BaseError

        try:
            with open(path, "rb") as file:
                obstore.put(self._store(), key, file)
        except (BaseError, OSError) as error:
            raise unreachable(self.url, error) from error

    def _download(self, key: str, file: Any) -> None:
        import obstore
        from obstore.exceptions import BaseError

        try:
            for chunk in obstore.get(self._store(), key).stream(min_chunk_size=CHUNK):
                file.write(chunk)
            file.flush()
        except (BaseError, OSError) as error:
            raise unreachable(self.url, error) from error

    def _keys(self, name: str) -> list[str]:
        import obstore
        from obstore.exceptions import BaseError

        try:
            pages = list(obstore.list(self._store(), self._folder(name)))
        except FileNotFoundError:
            return []
        except (BaseError, OSError) as error:
            raise unreachable(self.url, error) from error
        return [item["path"] for page in pages for item in page if item["path"].endswith(ENDING)]

    def _store(self) -> Any:
        if self._opened is None:
            self._opened = open_object_store(self.url)
        return self._opened
