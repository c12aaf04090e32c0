"""Redirections: where a command's descriptors go instead."""

import errno
from typing import TYPE_CHECKING

from agent.virtual.files.nodes import File
from agent.virtual.files.tree import failed, strerror
from agent.virtual.shell import expansion
from agent.virtual.shell.call import Streams, encode
from agent.virtual.shell.grammar import Redirect
from agent.virtual.shell.streams import Bytes, FileSink, Sink

if TYPE_CHECKING:
    from agent.virtual.shell.interpreter import Shell


async def redirected(shell: "Shell", redirects: tuple[Redirect, ...], streams: Streams) -> Streams:
    """Apply redirections from left to right."""
    for redirect in redirects:
        target = await expansion.single(shell, redirect.target, streams)
        if redirect.operator == "<<":
            streams = streams._replace(stdin=Bytes(encode(target)))
        else:
            streams = _redirect(shell, redirect, target, streams)
    return streams


def refusal(error: OSError) -> str:
    """Why a redirection failed, in the shell's words."""
    where = str(error.filename)
    where = where if where.startswith("can't") else f"can't open {where}"
    return f"{where}: {strerror(error)}"


def _redirect(shell: "Shell", redirect: Redirect, target: str, streams: Streams) -> Streams:
    tree, uid = shell.phone.tree, shell.process.uid
    if redirect.operator == "<":
        return streams._replace(stdin=Bytes(tree.read(target, uid, shell.cwd)))
    if redirect.operator == ">&":
        if redirect.descriptor == 0:
            return streams if target != "-" else streams._replace(stdin=Bytes())
        if target == "-":
            nowhere = FileSink(tree, tree.open_for_writing("/dev/null", uid), uid)
            return _with_sink(streams, redirect.descriptor, nowhere)
        sinks = {"1": streams.stdout, "2": streams.stderr}
        if target not in sinks:
            raise failed(errno.EBADF, target)
        return _with_sink(streams, redirect.descriptor, sinks[target])
    try:
        node = tree.open_for_writing(target, uid, shell.cwd, redirect.operator == ">>")
    except OSError as error:
        error.filename = f"can't create {target}"
        raise
    path = target if target.startswith("/") else f"{shell.cwd.rstrip('/')}/{target}"
    how = "append" if redirect.operator == ">>" else "write"
    if isinstance(node, File):
        tree.note(path, "open" if how == "append" else "create", b"", uid)
    return _with_sink(streams, redirect.descriptor, FileSink(tree, node, uid, path, how))


def _with_sink(streams: Streams, descriptor: int, sink: Sink) -> Streams:
    if descriptor == 1:
        return streams._replace(stdout=sink)
    if descriptor == 2:
        return streams._replace(stderr=sink)
    raise failed(errno.EBADF, str(descriptor))
