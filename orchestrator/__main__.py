"""The farm command: `farm`, or `python -m orchestrator`."""

import signal

if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    # Ctrl-C during the imports ends the program at once, without a traceback; `main` restores it.
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from orchestrator.cli import main

if __name__ == "__main__":
    main()
