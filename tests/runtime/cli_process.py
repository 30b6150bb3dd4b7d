"""`understudy` commands as processes of their own, forked from a program that has its imports behind it.

A line (JSON: argv, folder, to) starts one, with its output in the file `to`.out and its errors in `to`.err; the line
that comes back is its process id. When it ends, its exit code goes into `to`.code.
"""

import json
import os
import select
import sys
from pathlib import Path

import torch._dynamo  # noqa: F401  the first optimizer of a process imports it, which takes seconds

import understudy.report.page
import understudy.run
import understudy.runtime.authority
import understudy.runtime.policy  # noqa: F401
from understudy import cli


def play(order: dict[str, object]) -> None:
    for number, end in ((1, "out"), (2, "err")):
        os.dup2(os.open(f"{order['to']}.{end}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.chdir(str(order["folder"]))
    sys.argv = ["understudy", *order["argv"]]  # type: ignore[misc]
    code = 0
    try:
        cli.main()
    except SystemExit as end:
        code = int(end.code or 0)
    except BaseException as error:
        os.write(2, f"{error!r}\n".encode())
        code = 99
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def main() -> None:
    children: dict[int, str] = {}
    while True:
        ready, _, _ = select.select([0], [], [], 0.02)
        if ready:
            if not (line := os.read(0, 1 << 16)):
                return
            order = json.loads(line)
            if (child := os.fork()) == 0:
                play(order)
            children[child] = order["to"]
            os.write(1, f"{child}\n".encode())
        while children and (ended := os.waitpid(-1, os.WNOHANG))[0]:
            file = Path(f"{children.pop(ended[0])}.code")
            (draft := file.with_suffix(".part")).write_text(str(os.waitstatus_to_exitcode(ended[1])))
            draft.replace(file)


if __name__ == "__main__":
    main()
