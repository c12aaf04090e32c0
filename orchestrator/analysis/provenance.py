"""What a number that was made of several may claim: no more than its weakest part."""

from collections.abc import Iterable

from workloads.measure import Model, Provenance, Source


def weakest(provenances: Iterable[Provenance]) -> Provenance:
    """The provenance that a number made of several may claim: that of its weakest part."""

    def weakness(provenance: Provenance) -> tuple[int, bool, float]:
        place = (Source.PHONE, Source.HOST, Source.SIMULATED).index(provenance.source)
        return place, provenance.model is Model.EXTRAPOLATED, provenance.error_rel or 0.0

    return max(provenances, key=weakness)
