"""Two ranks of which one sleeps; a module of its own, so that a new process finds it."""

import json
import os
from datetime import timedelta
from pathlib import Path
from time import sleep

import torch

from advnorm import ranks


def rank(me: int, port: int, place: str, seconds: float, limit: float, out: str) -> None:
    """Meet the other rank and add up; the second one sleeps before or after they meet."""
    os.environ |= {"RANK": str(me), "WORLD_SIZE": "2"}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    ranks.TIMEOUT = timedelta(seconds=limit)
    try:
        if me and place == "before":
            sleep(seconds)
        with ranks.process_group(torch.device("cpu")):
            if me and place == "after":
                sleep(seconds)
            output = str(ranks.all_reduce_max(me))
    except ranks.PeerLostError as error:
        output = str(error)
    Path(out, f"{me}.json").write_text(json.dumps(output))
