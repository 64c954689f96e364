"""The agent's side of work.py: a Task in a process of its own, which is killed when its time is over."""

import asyncio
import os
import signal
import sys
from contextlib import suppress

from controller.agent.messages import Done, Task

PREPARE = "prepare"
FIRST_BOOT = "first_boot"
ON_DISK = "on_disk"
LET_BEGIN = "let_begin"
CHECK = "check"
ADMIT = "admit"
LEAVE = "leave"

#: How long each may take; engines come over the network, and all data of a node goes over it when it leaves.
SECONDS = {PREPARE: 1800, FIRST_BOOT: 180, ON_DISK: 120, LET_BEGIN: 30, CHECK: 40, ADMIT: 60, LEAVE: 24 * 3600}
_SHOWN_CHARACTERS = 2000


async def run(task: Task) -> Done:
    """Always answers; a task that fails or hangs is not ok."""
    seconds = SECONDS[task.task]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "controller.agent.work",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        said, complained = await asyncio.wait_for(process.communicate(task.model_dump_json().encode()), seconds)
    except TimeoutError:
        return Done(ok=False, text=f"{task.task}: no end within {seconds} s")
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    if process.returncode:
        return Done(ok=False, text=f"{task.task}: {complained.decode(errors='replace')[-_SHOWN_CHARACTERS:]}")
    return Done.model_validate_json(said)
