"""Operations over HTTP: the address of the API, its client, and values as JSON."""
