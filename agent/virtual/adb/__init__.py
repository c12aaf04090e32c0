"""The device side of ADB over TCP: packets, streams and the services behind them."""
