"""The names that phones of the studies were sold under; some report only a code."""

# Publicly known, from the makers' support pages: every regional code of a model is one name.
_NAMES = {
    "OnePlus 6": ("A6000", "A6003"),
    "OnePlus 8 Pro": ("IN2020", "IN2021", "IN2023", "IN2025"),
    "OnePlus Nord": ("AC2001", "AC2003"),
    "HUAWEI Mate 30": ("TAS-AL00", "TAS-L29"),
    "HUAWEI Honor 8": ("FRD-AL10", "FRD-L09"),
    "samsung Galaxy S8+": ("SM-G955F", "SM-G9550", "SM-G955U"),
}
_BY_CODE = {code.casefold(): name for name, codes in _NAMES.items() for code in codes}


def with_trade_name(model: str) -> str:
    """Return the name that a model was sold under and its code: 'OnePlus Nord (AC2003)'."""
    for word in model.split():
        name = _BY_CODE.get(word.casefold())
        if name is not None and name.casefold() not in model.casefold():
            return f"{name} ({word})"
    return model
