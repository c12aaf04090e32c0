"""What runs on the phone: the runner, its contract and (by digest) its builds."""
