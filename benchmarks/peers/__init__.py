"""Other training engines that the benchmarks compare ours with: PyTorch, MNN and numpy.

torch_peer.py, mnn_peer.py and numpy_peer.py run in a separate Python environment that does not
contain the farm. They read a network as JSON (network_description.py) and train it whenever they
are asked for a turn (peer_protocol.py).
"""
