"""Parses options as toybox does: bundled letters, some with a value, up to `--`."""


def split_options(arguments: list[str], valued: str = "") -> tuple[dict[str, str], list[str]]:
    """Return the options with their values, and the remaining arguments."""
    options: dict[str, str] = {}
    rest = list(arguments)
    while rest and rest[0].startswith("-") and rest[0] != "-":
        bundle = rest.pop(0)
        if bundle == "--":
            break
        if bundle.startswith("--"):
            name, _, value = bundle[2:].partition("=")
            options[name] = value
            continue
        letters = bundle[1:]
        while letters:
            letter, letters = letters[0], letters[1:]
            if letter in valued:
                options[letter] = letters or (rest.pop(0) if rest else "")
                letters = ""
            else:
                options[letter] = ""
    return options, rest
