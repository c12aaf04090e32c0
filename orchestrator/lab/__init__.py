"""A whole lab on one host: the embedded broker, the services and the demo."""
