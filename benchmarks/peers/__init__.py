"""Other engines beside ours: the same network, batch, optimizer and threads, turn by turn.

torch_peer.py and mnn_peer.py run in an environment of their own, which has nothing of the farm;
they get a network as JSON (describe.py) and take their turns when they are told to (speak.py).
"""
