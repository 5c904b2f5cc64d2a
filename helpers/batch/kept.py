"""A kernel that a worker keeps for its next runs, because starting anew what it has started would cost more than a run.

That is CUDA: no process can be forked once it has started there. Between two runs the kernel is reset, which is less
than fresh (`helpers.warm.reset` says what is put back), and the records say so. What cannot be reset is ended.
"""

import ast
import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from helpers.batch.prompt import PromptClient, PromptManager

_MODULE = "__import__('helpers.warm.reset', fromlist=['reset'])"
_ANSWER_S = 120  # the first question makes the kernel import what notebooks need


class Kept:
    """The kernel between two runs, if there is one.

    Attributes:
        left: what the last run left that could not be reset, in a few words each; its kernel was ended therefore.
    """

    def __init__(self) -> None:
        self.left: list[str] = []
        self._manager: KeptManager | None = None

    def take(self) -> "KeptManager | None":
        """Take the kernel out, if it lives; after the run `reset` puts it back."""
        manager, self._manager = self._manager, None
        return manager if manager is not None and manager.provisioner.process.poll() is None else None

    def holds(self, manager: "KeptManager | None") -> bool:
        """Whether this kernel is kept."""
        return manager is not None and self._manager is manager

    async def begin(self, client: PromptClient) -> None:
        """In a new kernel, before its first run: note how things are."""
        await _ask(client, "begin(get_ipython())")

    async def settle(self, client: PromptClient, environment: Mapping[str, str], folder: Path) -> None:
        """In a kernel that had runs before: what the next one wants."""
        log = str(folder / "kernel.log")
        await _ask(client, f"settle({dict(environment)!r}, {str(folder)!r}, {log!r})")

    async def reset(self, manager: "KeptManager", client: PromptClient) -> bool:
        """After a run: whether the kernel can be kept, and then it is."""
        try:
            self.left = ast.literal_eval(await _ask(client, "reset(get_ipython())"))
        except RuntimeError as error:
            self.left = [str(error)]
        self._manager = None if self.left else manager
        manager.runs += 1
        return not self.left

    def end(self) -> None:
        """End the kernel as one that is not kept."""
        if (manager := self.take()) is not None:
            asyncio.run(manager.leave())
            manager.provisioner.discard()


async def _ask(client: PromptClient, call: str) -> str:
    """What a function of `helpers.warm.reset` returns in the kernel, as text; it leaves no trace in the notebook.

    Raises:
        RuntimeError: it raised, or did not answer in time.
    """
    sent = client.execute("", silent=True, store_history=False, user_expressions={"it": f"{_MODULE}.{call}"})
    deadline = asyncio.get_running_loop().time() + _ANSWER_S
    while (left := deadline - asyncio.get_running_loop().time()) > 0:
        reply: dict[str, Any] = await client.get_shell_msg(timeout=left)
        if reply["parent_header"].get("msg_id") == sent:
            answer = reply["content"].get("user_expressions", {}).get("it", {"status": "error", "evalue": "no answer"})
            if answer["status"] != "ok":
                raise RuntimeError(f"it cannot be reset ({answer.get('ename')}: {answer.get('evalue')})")
            return answer["data"]["text/plain"]
    raise RuntimeError("it does not answer")


class KeptManager(PromptManager):
    """The manager of a kernel that may outlive its run.

    Attributes:
        kept: where the kernel is kept.
        last_client: the client that it has made last.
        runs: how many runs the kernel has been through.
    """

    kept: Kept
    runs = 0
    last_client: PromptClient

    def client(self, **options: Any) -> PromptClient:
        """A new client of the kernel."""
        self.last_client = super().client(**options)
        return self.last_client

    async def shutdown_kernel(self, now: bool = False, restart: bool = False) -> None:
        """All cells have run: keep the kernel if it can be reset."""
        if now or restart or not await self.kept.reset(self, self.last_client):
            await super().shutdown_kernel(now=now, restart=restart)

    async def cleanup_resources(self, restart: bool = False) -> None:
        """Remove what belongs to the kernel, unless it is kept."""
        if not self.kept.holds(self):
            await super().cleanup_resources(restart=restart)

    async def leave(self) -> None:
        """End the kernel."""
        await super().shutdown_kernel()


def again(manager: KeptManager) -> type:
    """The manager as papermill wants it, which is as a class."""
    return type("Again", (PromptManager,), {"__new__": lambda cls, **options: manager})
