"""A provisioner for Jupyter that forks Python kernels from the warm process and starts all others as ever."""

import logging
import os
import sys
import uuid
from pathlib import Path
from typing import Any

from jupyter_client.asynchronous import AsyncKernelClient
from jupyter_client.connect import KernelConnectionInfo
from jupyter_client.manager import AsyncKernelManager
from jupyter_client.provisioning import LocalProvisioner

from helpers.warm import folders
from helpers.warm.client import ADDRESS, Cold, Forked, fork
from helpers.warm.listening import ListeningClient

_LOG = logging.getLogger(__name__)
_UNDERSTOOD = {"env", "cwd", "stdout", "stderr", "extra_arguments", "kernel_id"}
_said: set[str] = set()  # once per process


class WarmProvisioner(LocalProvisioner):
    """Kernels of this very interpreter are forked, if a warm process can give them; sockets are private files.

    Attributes:
        address: of the warm process; None to start cold without a word.
    """

    address: str | None = None
    _folder: Path | None = None
    _forked: Forked | None = None

    def __init__(self, **options: Any):
        super().__init__(**options)
        self.address = os.environ.get(ADDRESS, "")

    async def pre_launch(self, **options: Any) -> dict[str, Any]:
        """Give the kernel sockets in a folder of its own, instead of TCP ports, and its clients better ears."""
        manager = self.parent
        if manager is not None and manager.client_factory is AsyncKernelClient:
            manager.client_factory = ListeningClient
        if manager is not None and is_own(manager.kernel_spec.argv) and self._folder is None:
            self._use_files(manager)
        return await super().pre_launch(**options)

    async def launch_kernel(self, cmd: list[str], **options: Any) -> KernelConnectionInfo:
        """Fork the kernel, or start it cold and say why, once in a process."""
        self._forked = None
        if self.address is not None:
            try:
                self._forked = self._fork(cmd, options)
            except Cold as reason:
                say_once(f"Kernels start cold: {reason}.")
        if self._forked is None:
            return await super().launch_kernel(cmd, **options)
        self.process = self._forked
        self.pid = self.pgid = self._forked.pid
        self.cwd = options.get("cwd") or Path.cwd()
        return self.connection_info

    async def cleanup(self, restart: bool = False) -> None:
        """Remove the kernel's folder, unless it is about to live there again."""
        await super().cleanup(restart=restart)
        if not restart:
            self.discard()

    def discard(self) -> None:
        """Let go of the kernel and remove its folder; for whoever cannot wait for `cleanup`."""
        if self._forked is not None:
            self._forked.let_go()
        if self._folder is not None:
            folders.remove(self._folder)
            self._folder = None

    def _use_files(self, manager: Any) -> None:
        ours = manager.transport == "ipc" and not os.path.isdir(os.path.dirname(manager.ip))  # from an earlier life
        if manager.transport != "tcp" and not ours:
            return  # somebody has chosen it
        folder = folders.private_folder("hb", "k-99")
        if folder is None:
            return
        self._folder = folder
        manager.transport, manager.ip = "ipc", str(folder / "k")
        manager.cache_ports = False
        if not manager.connection_file or not os.path.isdir(os.path.dirname(manager.connection_file)):
            manager.connection_file = str(folder / "kernel.json")

    def _fork(self, command: list[str], options: dict[str, Any]) -> Forked:
        if not self.address:
            raise Cold(f"{ADDRESS} names no warm process; `hookbook warm -- COMMAND` starts one")
        if not is_own(command):
            raise Cold(f"{command[0]} is not the Python of the warm process")
        if strange := sorted(name for name, value in options.items() if value and name not in _UNDERSTOOD):
            raise Cold(f"a fork does not know the option {strange[0]}")
        return fork(
            self.address,
            _launcher_arguments(command),
            environment=options["env"],
            cwd=options.get("cwd"),
            stdout=options.get("stdout"),
            stderr=options.get("stderr"),
            folder=self._folder,
        )


class WarmManager(AsyncKernelManager):
    """A kernel manager that forks whatever provisioner the kernelspec or the environment would have chosen.

    Attributes:
        address: of the warm process; None to start cold without a word.
    """

    address: str | None = None

    async def start_kernel(self, **options: Any) -> None:
        """Start the kernel; see `WarmProvisioner`."""
        if self.provisioner is None and "kernel_provisioner" not in self.kernel_spec.metadata:
            self.kernel_id = self.kernel_id or str(uuid.uuid4())
            self.provisioner = WarmProvisioner(kernel_id=self.kernel_id, kernel_spec=self.kernel_spec, parent=self)
            self.provisioner.address = self.address
        await super().start_kernel(**options)


def is_own(command: list[str]) -> bool:
    """Whether a command starts ipykernel with this interpreter."""
    python, *rest = [word for word in command if word != "-Xfrozen_modules=off"]  # for a debugger's sake
    names = {"python", f"python{sys.version_info[0]}", f"python{sys.version_info[0]}.{sys.version_info[1]}"}
    return rest[:2] == ["-m", "ipykernel_launcher"] and (python in names or _same(python, sys.executable))


def _same(one: str, other: str) -> bool:
    """Whether two paths are one interpreter in one environment (environments share what their links lead to)."""
    folders = os.path.realpath(os.path.dirname(one)), os.path.realpath(os.path.dirname(other))
    return folders[0] == folders[1] and os.path.realpath(one) == os.path.realpath(other)


def _launcher_arguments(command: list[str]) -> list[str]:
    return command[command.index("ipykernel_launcher") + 1 :]


def say_once(sentence: str) -> None:
    """Log a sentence as a warning, the first time in this process that there is anything to say."""
    if not _said:
        _said.add(sentence)
        _LOG.warning(sentence)
