"""Redirections: replaces the standard streams of a command."""

import errno
from typing import TYPE_CHECKING

from agent.virtual.files.file_nodes import RegularFile
from agent.virtual.files.file_tree import error_text, os_error
from agent.virtual.shell import word_expansion
from agent.virtual.shell.byte_streams import BufferedSource, ByteSink, FileSink
from agent.virtual.shell.command_call import StdStreams, encode
from agent.virtual.shell.syntax_tree import Redirect

if TYPE_CHECKING:
    from agent.virtual.shell.interpreter import Shell


async def apply_redirects(
    shell: "Shell", redirects: tuple[Redirect, ...], streams: StdStreams
) -> StdStreams:
    """Apply redirections from left to right."""
    for redirect in redirects:
        target = await word_expansion.expand_single(shell, redirect.target, streams)
        if redirect.operator == "<<":
            streams = streams._replace(stdin=BufferedSource(encode(target)))
        else:
            streams = _apply_redirect(shell, redirect, target, streams)
    return streams


def redirect_error(error: OSError) -> str:
    """Format the error of a failed redirection as mksh does."""
    where = str(error.filename)
    where = where if where.startswith("can't") else f"can't open {where}"
    return f"{where}: {error_text(error)}"


def _apply_redirect(
    shell: "Shell", redirect: Redirect, target: str, streams: StdStreams
) -> StdStreams:
    tree, uid = shell.phone.tree, shell.process.uid
    if redirect.operator == "<":
        return streams._replace(stdin=BufferedSource(tree.read(target, uid, shell.cwd)))
    if redirect.operator == ">&":
        if redirect.descriptor == 0:
            return streams if target != "-" else streams._replace(stdin=BufferedSource())
        if target == "-":
            null_sink = FileSink(tree, tree.open_for_writing("/dev/null", uid), uid)
            return _with_sink(streams, redirect.descriptor, null_sink)
        sinks = {"1": streams.stdout, "2": streams.stderr}
        if target not in sinks:
            raise os_error(errno.EBADF, target)
        return _with_sink(streams, redirect.descriptor, sinks[target])
    try:
        node = tree.open_for_writing(target, uid, shell.cwd, redirect.operator == ">>")
    except OSError as error:
        error.filename = f"can't create {target}"
        raise
    path = target if target.startswith("/") else f"{shell.cwd.rstrip('/')}/{target}"
    operation = "append" if redirect.operator == ">>" else "write"
    if isinstance(node, RegularFile):
        tree.report_write(path, "open" if operation == "append" else "create", b"", uid)
    return _with_sink(streams, redirect.descriptor, FileSink(tree, node, uid, path, operation))


def _with_sink(streams: StdStreams, descriptor: int, sink: ByteSink) -> StdStreams:
    if descriptor == 1:
        return streams._replace(stdout=sink)
    if descriptor == 2:
        return streams._replace(stderr=sink)
    raise os_error(errno.EBADF, str(descriptor))
