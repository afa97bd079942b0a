"""What a workflow does to the world outside: programs, web requests, files of its folder. Bounded in time and in size, always.

Whatever comes in from outside is hostile: a program that hangs, a server that never ends, a link out of the folder.
"""

from gateway.effects.folder import Folder
from gateway.effects.http import HttpResult, fetch
from gateway.effects.shell import ShellResult, run
from gateway.effects.values import EffectError

__all__ = ["EffectError", "Folder", "HttpResult", "ShellResult", "fetch", "run"]
